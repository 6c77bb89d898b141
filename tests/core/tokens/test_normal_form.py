"""The normal form of text, and where its characters are from."""

# ruff: noqa: RUF001

import re
import sys

from hypothesis import example, given
from hypothesis import strategies as st
from terms_by_hand import folded as folded_by_hand
from terms_by_hand import kind

from longctx.core.tokens.normal_form import folded, folded_places, kinds

ANY = st.text(max_size=30)


def test_every_character_has_the_kind_and_the_form_of_the_rule():
    """All of the first plane, and samples of the others."""
    text = "".join(map(chr, [*range(0x10000), *range(0x10000, sys.maxunicode, 37)]))
    wrong = [c for c, found in zip(text, kinds(text), strict=True) if found != kind(c)]
    assert wrong == []
    assert [c for c in text[:0x3400] if folded(c) != folded_by_hand(c)] == []


def test_letters_that_differ_in_case_alone_are_the_same():
    letters = [c for c in map(chr, range(sys.maxunicode + 1)) if c.lower() != c or c.upper() != c]
    same: dict[str, list[str]] = {}
    for letter in letters:
        same.setdefault(folded(letter), []).append(letter)
    everything = "".join(letters)
    for form, some in same.items():
        if len(form) == 1:
            assert {*re.findall(re.escape(some[0]), everything, re.IGNORECASE)} <= {*some}


@given(ANY)
@example("İ\u0323ıi\u0307 ΐ\u0345 ﬁ ㋀ ｶﾞ \u1100\u1161\u11a8 각 \u00ad\u200d")
def test_places_are_of_the_same_form(text):
    starts, ends, form = folded_places(text)
    assert form == folded(text)
    assert folded(form) == form
    assert len(starts) == len(ends) == len(form)
    assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True))
    assert [*starts] == sorted(starts)
