"""Where sentences and lines begin and end.

A line ends at a newline. Within a line a sentence ends at . ! ? or … plus closing quotes and
brackets, before white space; after a Chinese or Japanese mark the white space may be missing.
Abbreviations, initials and marks before a lowercase letter end no sentence. So code and logs are
cut into lines, prose into sentences.
"""

import re
import unicodedata
from itertools import pairwise

# The marks of Latin, Arabic and Indic scripts, and those of Chinese and Japanese, escaped where one
# looks like another. Closing quotes, brackets and Markdown's marks may follow them.
_MARKS = r".!?\u2026\u061f\u06d4\u0964\u0965"
_FULL = (
    r"[\u3002\uff01\uff1f\uff61\uff0e]+[\u300d\u300f\u201d\u2019\uff09\u3011\u3009\u300b\"')\]]*+"
)
_CLOSING = r"[\"'\u201d\u2019»\u203a)\]}*_`]*+"
_END = re.compile(
    rf"\n|(?<![{_MARKS}])[{_MARKS}]++{_CLOSING}(?=\s|\Z)|{_FULL}|\u2026+[\u300d\u300f\u201d]+"
)
_LAST_WORD = re.compile(r"[^\W_](?:[^\W_]|['\u2019.-](?=[^\W_]))*\Z")
_NEXT = re.compile(r"[^\S\n]*[\"'\u201c\u2018«\u2039(\[{*_`]*(\S?)")
_LOOK_BACK = 32  # characters: longer than any abbreviation
_SIGHT = 200  # characters before a place searched for the end of a sentence
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms mx dr prof rev revd hon fr st ste sr sra srta jr messrs mme mlle mgr msgr sig "
        "esq supt insp gen col capt cpt lt lieut sgt cpl pvt maj adm cmdr cdr pres gov sen rep "
        "wm chas geo jas jos thos edw robt benj saml v vs cf viz al approx ca dept univ est "
        "inc ltd corp co bros assn mt ft ave blvd rd hwy ed eds trans resp incl excl "
        "jan feb mar apr jun jul aug sept sep oct nov dec bzw",
    )
)
_BEFORE_NUMBERS = frozenset(  # abbreviations only before numbers: "he said no."
    re.findall(
        r"\S+",
        "no nos nr p pp vol vols ch chap sec sect fig figs eq eqs art par op rs tel ext c b d fl r "
        "mon tue tues wed thu thur thurs fri sat sun",
    )
)
# 5, B12, #4, \u00a35 and Roman numerals; but not "I", which begins a sentence more often.
_NUMBER = re.compile(r"[^\S\n]*[(\[#\u00a3$\u20ac]?(?:[A-Z]{0,3}-?\d|(?!I\b)[IVXLC]+\b)")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")  # e.g, i.e, U.S, Ph.D
_APOSTROPHES = "'\u2019"
# Scripts without spaces: a word can end at any character.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text, in order; none crosses the end of a line.

    Args:
        text: any; its start and end count as sentence bounds.

    Returns:
        (start, end) in characters, without surrounding white space; none is empty.
    """
    bounds = [0, *ends(text, 0, len(text)), len(text)]
    trimmed = (stripped(text, *span) for span in pairwise(bounds))
    return [(start, end) for start, end in trimmed if start < end]


def ends(text: str, first: int, last: int) -> list[int]:
    """Where sentences and lines end, in characters, ascending, from `first` to `last` at most."""
    found = _END.finditer(text, first, last)
    return [match.end() for match in found if _ends(text, match)]


def begins_sentence(text: str, place: int) -> bool:
    """Whether a place is not inside a sentence that began on an earlier line."""
    low = max(0, place - _SIGHT)
    before = text[low:place]
    if not before.strip() or before[len(before.rstrip()) :].count("\n") > 1:
        return True
    marks = [match for match in _END.finditer(text, low, place) if match[0] != "\n"]
    last = marks[-1] if marks else None
    return last is not None and not text[last.end() : place].strip() and _ends(text, last)


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """[start, end) of a text without white space at both ends; (end, end) if nothing is left."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def word_begin(text: str, place: int) -> int:
    """The start of the word that `place` is inside of; else `place`."""
    while _within_word(text, place):
        place -= 1
    return place


def word_end(text: str, place: int) -> int:
    """The end of the word that `place` is inside of; else `place`."""
    while _within_word(text, place):
        place += 1
    return place


def _ends(text: str, match: re.Match) -> bool:
    """Whether a mark that can end a sentence does."""
    mark = match[0]
    if mark[0] not in ".!?\u2026":
        return True
    opened = _NEXT.match(text, match.end())  # can match nothing, so it always matches
    following = opened[1] if opened else ""
    if following.islower():
        return False
    alone = mark[0] == "." and mark[1:2] not in ("!", "?", ".", "\u2026")
    return not alone or not _abbreviated(text, match, following)


def _abbreviated(text: str, match: re.Match, following: str) -> bool:
    """Whether a dot is part of the word before it."""
    found = _LAST_WORD.search(text, max(0, match.start() - _LOOK_BACK), match.start())
    if found is None:
        return False
    word = found[0]
    if word.isdigit():  # "3. Then", in a list
        return not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
    if len(word) == 1 and word.isupper():  # an initial
        return word != "I"
    if word.lower() in _BEFORE_NUMBERS:
        return following.isdigit() or _NUMBER.match(text, match.end()) is not None
    return word.lower() in _ABBREVIATIONS or bool(_DOTTED.fullmatch(word))


def _within_word(text: str, place: int) -> bool:
    """Whether a word continues across a place between two characters."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if unicodedata.category(after)[0] == "M":
        return True  # an accent or a vowel sign on the character before
    if after in _APOSTROPHES:
        return before.isalnum() and text[place + 1 : place + 2].isalnum()
    if before in _APOSTROPHES:
        return after.isalnum() and text[max(0, place - 2) : place - 1].isalnum()
    return _of_word(before) and _of_word(after)


def _of_word(character: str) -> bool:
    letter = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return letter and not _UNSPACED.match(character)
