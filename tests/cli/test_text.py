"""Text made fit to show."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.cli.text import clean, duration, one_line, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\x", "x"),
        ("\x1b]0;no end\nnext line", "0;no end\nnext line"),
        ("\x1b(B\x1bcx\x1b", "x"),
        ("a\r\nb\x00\x08\x7f\x85\x9b", "a\nb"),
        ("\u202eevil\u202c \u2066x\u2069 \ufeff\u200b\u00ad\U000e0041", "evil x "),
        ("na\u0308ive 日本 🙂 [red]", "na\u0308ive 日本 🙂 [red]"),
        ("\u0645\u06cc\u200c\u062e\u200d \u06dd1", "\u0645\u06cc\u200c\u062e\u200d \u06dd1"),
        ("bad\udcff name", "bad\ufffd name"),
    ],
)
def test_clean_leaves_nothing_that_steers_a_terminal(text, shown):
    assert clean(text) == shown


@given(st.text(st.sampled_from("\x1b[]0;mP\\\x07\x9b\u202e\udc80\r\nab")) | st.text())
def test_no_control_character_survives(text):
    left = {unicodedata.category(c) for c in clean(text) if c not in "\n\t"}
    assert not left & {"Cc", "Cs"}
    assert clean(clean(text)) == clean(text)


def test_one_line_is_cut_where_it_is_too_long():
    assert one_line("a\n b\u2028c\t d") == "a b c d"
    assert one_line("abc def", limit=7) == "abc def"
    assert one_line("abc defg", limit=5) == "abc…"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**9, "5.0 GB"),
        (7 * 10**15, "7000.0 TB"),
        (None, "unknown"),
    ],
)
def test_sizes(count, shown):
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (8.25, "8.2 s"), (60, "1:00"), (185.4, "3:05"), (7385, "2:03:05")],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown
