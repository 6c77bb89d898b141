"""Numbers as people write them: tokens, bytes and seconds.

Knows nothing of what is counted.
"""

import re
from fractions import Fraction

from longctx.core.common.errors import UsageError

_TOKENS = {"": 1, "k": 1000, "K": 1 << 10, "m": 1_000_000, "M": 1 << 20}
_BYTES = {"": 1, "B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SECONDS = {"s": 1, "min": 60, "h": 3600}


def parse_tokens(text: str) -> int:
    """Tokens: 16000, 16_000, 16k (= 16,000), 16K (= 16,384), 1m, 1M (= 1,048,576), 1.5M.

    Raises:
        UsageError: anything else, or not a positive whole number.
    """
    count = _parse(text, _TOKENS)
    if count is None:
        raise UsageError(
            f"cannot use {text!r}",
            "it is no whole number of tokens",
            "Write 16000, 16k (= 16,000), 16K (= 16,384), 1m or 1M (= 1,048,576).",
        )
    return count


def show_tokens(count: int) -> str:
    """Tokens as `parse_tokens` reads them, in the shortest form: 16k, 128K, 1M, or 1,457."""
    for unit in ("M", "m", "k", "K"):  # thousands first: 256,000 is both 256k and 250K
        if count % _TOKENS[unit] == 0:
            return f"{count // _TOKENS[unit]:,}{unit}"
    return f"{count:,}"


def parse_bytes(text: str) -> int:
    """Bytes: 5000, 300kB, 1.5GB (powers of 1,000), 2GiB (powers of 1,024).

    Raises:
        UsageError: anything else, or not a positive whole number.
    """
    count = _parse(text, _BYTES)
    if count is None:
        raise UsageError(
            f"cannot use {text!r}",
            "it is no size in bytes",
            "Write 500MB, 1.5GB or 2GiB (powers of 1,024).",
        )
    return count


def show_bytes(count: int) -> str:
    """Bytes for people: 999,999 bytes, 12.3 MB, 4.56 GB; small ones exact."""
    if count < 10**6:
        return f"{count:,} {'byte' if count == 1 else 'bytes'}"
    return f"{count / 1e6:.1f} MB" if count < 10**9 else f"{count / 1e9:.2f} GB"


def parse_tokens_or_seconds(text: str) -> tuple[int | None, int | None]:
    """(tokens, None) for what `parse_tokens` reads, (None, seconds) for 90s, 5min, 1h.

    Raises:
        UsageError: anything else, or not a positive whole number.
    """
    seconds = _parse(text, _SECONDS)
    if seconds is not None:
        return None, seconds
    try:
        return parse_tokens(text), None
    except UsageError as error:
        raise UsageError(
            error.what,
            "it is neither tokens nor seconds",
            "Write tokens, such as 64k or 1M, or a time, such as 90s or 5min.",
        ) from error


def parse_seconds(text: str) -> int:
    """Seconds: 90s, 5min, 1h.

    Raises:
        UsageError: anything else, or not a positive whole number.
    """
    seconds = _parse(text, _SECONDS)
    if seconds is None:
        raise UsageError(f"cannot use {text!r}", "it is no time", "Write 90s, 5min or 1h.")
    return seconds


def _parse(text: str, units: dict[str, int]) -> int | None:
    """A positive whole number; None if it is not one, or has another unit."""
    found = re.fullmatch(r"(\d+(?:_\d+)*(?:\.\d+)?)([A-Za-z]*)", text.strip(), re.ASCII)
    if not found or found[2] not in units:
        return None
    count = Fraction(found[1].replace("_", "")) * units[found[2]]
    return int(count) if count >= 1 and count.denominator == 1 else None
