"""Regular expressions for lines: what they match, and what is refused."""

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.passages.line_filter import LineFilter


def test_it_matches_anywhere_in_a_line():
    found = LineFilter(r"ERR\w+")
    assert found.matches("an ERROR here")
    assert not found.matches("an error here")
    assert found.spans("ERROR, ERRORS") == [(0, 5), (7, 13)]
    assert LineFilter("x*").matches("y")
    assert LineFilter("x*").spans("y") == []


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?P<x", "*"])
def test_what_is_no_expression_is_refused(pattern):
    with pytest.raises(UsageError, match=r"cannot use the regular expression .*Correct it"):
        LineFilter(pattern)


@pytest.mark.parametrize("what", ["matches", "spans"])
def test_a_line_that_takes_too_long_is_an_error(what):
    slow = LineFilter(r"(a|aa)+\1$(?=b)", seconds=0.05)
    with pytest.raises(UsageError, match=r"longer than 0.05 s"):
        getattr(slow, what)("a" * 5000 + "c")
