"""Wrapped prose: which line ends only fill the width of a page, and end nothing.

A paragraph is a run of lines that are not empty, of one depth of quotation. Where it has the end of
a sentence and most of its words are words, a line end is soft if the line before it is long and the
next begins as prose goes on. So lists, code, logs, tables, headings and verse stay lines, and so do
scripts without letter case.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

_LONG = 40  # characters of a line that was wrapped
_FULL = 0.6  # of the longest line of its paragraph, at least
_WORDS = 0.75  # of what stands between white space in prose, numbers aside
_GOING_ON = 1 / 3  # of a paragraph's lines in lower case: then it is wrapped before capitals too

_LINE = re.compile(r"( {0,3}(?:>[ \t]?)+)?([^\n]*)(?:\n|\Z)")
_FENCE = re.compile(r"\s*(?:```|~~~)")
# A heading, a row of a table, a rule, an import: nothing goes on behind it.
_ALONE = re.compile(r"\s*(?:#+\s|\||\W+\Z|(?:from\s\S+\s)?import\s)")
_CODE = re.compile(r"(?:\"\"\"|\(\)|[{}=])\Z")  # ends a line of a program
_ITEM = re.compile(r"(\s*)((?:[-+*\u2022]|\d{1,3}[.)])(?:\s+|\Z))?")
_OPENING = r"[\"'\u201c\u2018\u201e\u00ab\u00bb(\[*_`\u2014\u2013]*"
_LETTER = re.compile(rf"\s*{_OPENING}([^\W\d_])")
_WORD = re.compile(
    rf"{_OPENING}[^\W\d_]+(?:[-'\u2019\u2014\u2013]+[^\W\d_]+)*"
    r"[\"'\u201d\u2019\u201c\u00ab\u00bb)\]*_`.,;:!?\u2026\u2014\u2013-]*"
)
_MARK = re.compile(r"[.!?\u2026\u037e][\"'\u201d\u2019\u201c\u00ab\u00bb)\]*_`]*+(?:\s|\Z)")
_NUMBER = re.compile(r"[(\[$\u00a3\u20ac#]*\d[\d.,:/%\u2013-]*+\W*+")


class _Line(NamedTuple):
    """A line: its text is [start, end), behind quote marks and before white space."""

    depth: int
    start: int
    end: int
    text: str


def unwrapped(text: str) -> str:
    """A text of the same length: soft line ends, and quote marks behind them, become spaces.

    Args:
        text: any; cut off at its ends, its first line may seem too short to have been wrapped.
    """
    if "\n" not in text:
        return text
    parts, done = [], 0
    for start, end in _soft_ends(text):
        parts += [text[done:start], " " * (end - start)]
        done = end
    return "".join([*parts, text[done:]])


def unquoted(text: str) -> int:
    """How many characters of quote marks and white space a text begins with."""
    marks = _LINE.match(text)
    return marks.end(1) if marks and marks[1] else 0


def _soft_ends(text: str) -> Iterator[tuple[int, int]]:
    """From the end of one line's text to the start of the next one's, for each soft line end."""
    for paragraph in _paragraphs(text):
        if len(paragraph) < 2 or not _is_prose(paragraph):
            continue
        longest = max(len(line.text) for line in paragraph)
        low = sum(_first_letter(line.text).islower() for line in paragraph[1:])
        goes_on = low >= _GOING_ON * (len(paragraph) - 1)
        for before, after in pairwise(paragraph):
            long = len(before.text) >= max(_LONG, _FULL * longest)
            if long and _follows(before.text, after.text, goes_on):
                yield before.end, after.start


def _paragraphs(text: str) -> Iterator[list[_Line]]:
    """Runs of lines of one depth that are not empty; lines of fenced code are left out."""
    held: list[_Line] = []
    fenced = False
    for match in _LINE.finditer(text):
        depth = (match[1] or "").count(">")
        own = match[2].rstrip(" \t\r")
        line = _Line(depth, match.start(2), match.start(2) + len(own), own)
        fence = bool(_FENCE.match(line.text))
        fenced ^= fence
        outside = line.text.strip() and not fence and not fenced
        if held and not (outside and held[-1].depth == depth):
            yield held
            held = []
        if outside:
            held.append(line)
    yield held


def _is_prose(paragraph: list[_Line]) -> bool:
    """Whether a paragraph has the end of a sentence, and most of its words are words."""
    if not any(_MARK.search(line.text) for line in paragraph):
        return False
    found = [word for line in paragraph for word in line.text.split()]
    told = [word for word in found if not _NUMBER.fullmatch(word)]
    return sum(_WORD.fullmatch(word) is not None for word in told) >= _WORDS * len(told)


def _follows(before: str, after: str, goes_on: bool) -> bool:
    """Whether a line goes on in the next one; `goes_on`: not only in lower case."""
    if _ALONE.match(before) or _ALONE.match(after) or _CODE.search(before, len(before) - 3):
        return False
    begun, item = _ITEM.match(before), _ITEM.match(after)
    if not (begun and item) or item[2] or item.end() not in (0, begun.end()):
        return False  # an item, or set in otherwise than the line before or the text of its item
    first = after.split(maxsplit=1)[0]
    if first.endswith(":"):  # a key
        return False
    if _WORD.fullmatch(first):
        return goes_on or _first_letter(first).islower()
    return goes_on and bool(_NUMBER.fullmatch(first))


def _first_letter(text: str) -> str:
    """The letter that a line begins with, behind white space and opening quotes; else nothing."""
    found = _LETTER.match(text)
    return found[1] if found else ""
