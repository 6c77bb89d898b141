"""Which letters are the same but for case, beside what `re` says."""

import re
import sys

from longctx.core.tokens.letter_case import ODD, folded


def test_letters_are_the_same_where_expressions_without_case_say_so():
    letters = [c for c in map(chr, range(sys.maxunicode + 1)) if c.lower() != c or c.upper() != c]
    letters = sorted({*letters, *ODD, *ODD.values()})
    same: dict[str, str] = {}
    for letter in letters:
        same[folded(letter)] = same.get(folded(letter), "") + letter
    everything = "".join(letters)
    for some in same.values():
        found = re.findall(re.escape(some[0]), everything, re.IGNORECASE)
        assert sorted(found) == sorted(some), ascii(some)


def test_folding_keeps_places_and_the_end_of_a_word_is_no_other_letter():
    assert folded("ΟΔΟΣ, οδος İı STRASSE Straße") == "οδοσ, οδοσ ii strasse straße"
    every = "".join(chr(n) for n in range(0x20000))
    assert len(folded(every)) == len(every)
    assert folded(folded(every)) == folded(every)
