"""Numbers as people write them, and what is refused as none."""

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.common.units import (
    parse_bytes,
    parse_seconds,
    parse_tokens,
    parse_tokens_or_seconds,
    show_bytes,
    show_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("16000", 16_000),
        ("1_000", 1000),
        ("1k", 1000),
        ("1K", 1024),
        ("1m", 1_000_000),
        ("1M", 1_048_576),
        ("1.5M", 1_572_864),
        ("0.5k", 500),
        (" 16k ", 16_000),
    ],
)
def test_tokens(text, tokens):
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text", ["", "k", "0", "-1", "1.5", "0.0001k", "1 k", "1G", "1kk", "1e3", "_1", "1__0", "٣"]
)
def test_no_tokens(text):
    with pytest.raises(UsageError, match="no whole number of tokens"):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("5000", 5000), ("1kB", 1000), ("1.5GB", 1_500_000_000), ("2GiB", 1 << 31), ("1TB", 10**12)],
)
def test_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "0GB", "-1GB", "1 GB", "1gb", "1G", "1.0001kB1"])
def test_no_bytes(text):
    with pytest.raises(UsageError, match="no size in bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64k", (64_000, None)),
        ("1M", (1 << 20, None)),
        ("90s", (None, 90)),
        ("5min", (None, 300)),
        ("0.5h", (None, 1800)),
    ],
)
def test_tokens_or_seconds(text, expected):
    assert parse_tokens_or_seconds(text) == expected


def test_seconds():
    assert [parse_seconds(text) for text in ("90s", "5min", "1h", "0.5min")] == [90, 300, 3600, 30]
    for text in ("", "90", "0s", "1.5s", "much", "5 min"):
        with pytest.raises(UsageError, match="it is no time"):
            parse_seconds(text)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "0", "1.5", "0.5s", "5 min", "1d"])
def test_neither_tokens_nor_seconds(text):
    with pytest.raises(UsageError, match="neither tokens nor seconds"):
        parse_tokens_or_seconds(text)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999_999, "999,999 bytes"),
        (12_345_678, "12.3 MB"),
        (4_560_000_000, "4.56 GB"),
    ],
)
def test_bytes_are_shown_so_that_small_ones_are_exact(count, shown):
    assert show_bytes(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        *((16_000, "16k"), (256_000, "256k"), (16_384, "16K"), (1 << 20, "1M")),
        *((2_000_000, "2m"), (1457, "1,457")),
    ],
)
def test_tokens_are_shown_as_they_are_read(count, shown):
    assert show_tokens(count) == shown
    assert "," in shown or parse_tokens(shown) == count
