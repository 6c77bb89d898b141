"""Where sentences and lines begin and end, and how ranges of tokens grow to these bounds.

A line ends at a newline. Within a line a sentence ends at . ! ? or … plus closing quotes and
brackets, before white space; after a Chinese or Japanese mark the white space may be missing.
Abbreviations, initials and marks before a lowercase letter end no sentence. So code and logs are
cut into lines, prose into sentences.
"""

import re
import unicodedata

import numpy as np

from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document
from longctx.core.store.shards import damaged

REACH = 64  # tokens that a range may grow on each side
_MORE = 8  # further tokens read, to know what surrounds a mark

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
    found, begun = [], 0
    for match in _END.finditer(text):
        if _ends(text, match):
            found.append((begun, match.end()))
            begun = match.end()
    trimmed = (stripped(text, *span) for span in [*found, (begun, len(text))])
    return [(start, end) for start, end in trimmed if start < end]


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


def grown(document: Document, first: int, end: int, reach: int = REACH) -> tuple[int, int]:
    """Grows a range of tokens until it begins and ends with a sentence or a line.

    Where no sentence or line bound is near enough, it grows to the nearest word bound.

    Args:
        document: open.
        first, end: tokens [first, end) of one source, numbered over the document.
        reach: the most tokens to grow by on each side.

    Returns:
        [first, end) of the same source, enclosing the given range.

    Raises:
        StateMismatch: the text or the tokens are damaged.
        ValueError: no tokens, or not of one source.
    """
    source = document.manifest.sources[document.source_of(first)]
    if not first < end <= source.first_token + source.tokens:
        raise ValueError(f"tokens [{first}, {end}) are not of one source")
    return _grown_back(document, first, reach), _grown_ahead(document, end, reach)


def _grown_back(document: Document, first: int, reach: int) -> int:
    number = document.source_of(first)
    source = document.manifest.sources[number]
    low = max(source.first_token, first - reach)
    begin = max(source.first_token, low - _MORE)
    stop = min(source.first_token + source.tokens, first + _MORE)
    snippet, starts = _around(document, begin, stop)
    text, place = snippet.text, snippet.containing(starts[first - begin])
    wanted = next((start for start, end in sentences(text) if start < place < end), place)
    if snippet.byte(wanted) < starts[low - begin]:  # too far away, or perhaps no beginning
        wanted = max(word_begin(text, place), snippet.since(starts[low - begin]))
    return begin + _last_up_to(starts, snippet.byte(wanted), first - begin)


def _grown_ahead(document: Document, end: int, reach: int) -> int:
    number = document.source_of(end - 1)
    source = document.manifest.sources[number]
    last = source.first_token + source.tokens
    high = min(last, end + reach)
    begin, stop = max(source.first_token, end - _MORE), min(last, high + _MORE)
    snippet, starts = _around(document, begin, stop)
    text, place = snippet.text, snippet.since(starts[end - begin])
    wanted = next((stop for start, stop in sentences(text) if start < place < stop), place)
    if snippet.byte(wanted) > starts[high - begin]:
        wanted = min(word_end(text, place), snippet.since(starts[high - begin]))
    byte = snippet.byte(wanted)
    return next((begin + n for n in range(end - begin, high - begin) if starts[n] >= byte), high)


def _around(document: Document, begin: int, stop: int) -> tuple[Snippet, list[int]]:
    """The text of tokens [begin, stop) of one source; the first byte of each, and the end."""
    number, start, end = document.span(begin, stop)
    starts = document.array_take("tokens", np.arange(begin, stop), "starts").tolist()
    if sorted(starts) != starts or starts[-1] > end:
        why = "its tokens do not follow one another"
        raise damaged(document.folder, why, document.folder.name)
    return Snippet.of(document, number, start, end), [*starts, end]


def _last_up_to(starts: list[int], byte: int, most: int) -> int:
    """The last of the first `most` + 1 tokens that begins at or before a byte."""
    return next((number for number in range(most, 0, -1) if starts[number] <= byte), 0)


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
