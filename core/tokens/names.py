"""Names: the words of a text, and their parts, in normal form and not yet reduced to stems.

`docs/format.md` has the rule, under "Terms". Only the separators of numbers depend on the language.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import add
from typing import NamedTuple

from longctx.core.tokens.normal_form import clusters, composed, folded, kinds

LONGEST = 256  # characters of a word; a longer run of letters is cut into words of this length
POINTS = {"", "en", "he", "hi", "ja", "ko", "ne", "ta", "th", "zh"}  # 1,234.5; elsewhere 1.234,5
_SPACERS = "'\u2019\u00a0\u2007\u2009\u202f"  # between thousands, in any language
# Of kinds (`normal_form.kinds`): a word, or a run in a script without spaces.
RUN = re.compile(rf"[Aa0_][Aa0_m]{{0,{LONGEST - 1}}}|u[um]*")
_ASCII_RUN = re.compile(rf"\w{{1,{LONGEST}}}", re.ASCII)
_PIECE = re.compile(r"[Aa0_][Aa0_m]*|u[um]*")  # of a run whose characters stand for several
# The parts of an identifier: `URLs`, `HTTP` before `Server`, `Server` or `server`, `2`.
_ASCII_PARTS = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PARTS = re.compile(r"A[Am]*(?![am])|(?:Am*)?a[am]*|0[0m]*")  # of kinds


class Name(NamedTuple):
    """A term before it is reduced to a stem; `whole`: it is a word, not a part of one."""

    start: int
    end: int
    text: str
    whole: bool = True


def names_in(text: str) -> Iterator[Name]:
    """The words of a text, and their parts."""
    plain = text.isascii()
    for run in (_ASCII_RUN if plain else RUN).finditer(text if plain else kinds(text)):
        first = run.start()
        for start, end, name, whole in names_of(text[first : run.end()]):
            yield Name(first + start, first + end, name, whole)


def names_of(run: str) -> list[Name]:
    """The names of a run of one word, or of characters of a script without spaces."""
    if not run.isascii():
        return _of_form(run, composed(run))
    begin = len(run) - len(run.lstrip("_"))
    word = run.strip("_")
    if not word:
        return []
    found = [Name(begin, begin + len(word), word.lower())]
    if not (word.isalpha() and (word.islower() or word.istitle())):
        parts = [part.span() for part in _ASCII_PARTS.finditer(run)]
        found += _parts(run, parts)
    return found


def _of_form(run: str, form: str) -> list[Name]:
    """The names of a run outside ASCII, from its form in NFKC."""
    found: list[Name] = []
    kind = kinds(form)
    for piece in _PIECE.finditer(kind):
        start, end = piece.span()
        if kind[start] == "u":
            found += _pairs(form, start, end)
            continue
        while start < end and kind[start] in "_m":
            start += 1
        while start < end and form[end - 1] == "_":
            end -= 1
        if start < end:
            found.append(Name(start, end, folded(form[start:end])))
            parts = [part.span() for part in _PARTS.finditer(kind, start, end)]
            found += _parts(form, parts)
    if form == run:
        return found
    starts, ends = _places(run, len(form))
    return [Name(starts[s], ends[e - 1], name, whole) for s, e, name, whole in found]


def _parts(word: str, spans: list[tuple[int, int]]) -> list[Name]:
    """The parts of an identifier, without those of one letter; none of a word that has one part."""
    if len(spans) < 2:
        return []
    found = [Name(start, end, folded(word[start:end]), False) for start, end in spans]
    return [name for name in found if len(name.text) > 1 or name.text.isdecimal()]


def _pairs(form: str, start: int, end: int) -> list[Name]:
    """The pairs of neighbouring characters of [start, end); of one character alone, itself."""
    spans = [(start + s, start + e) for s, e in clusters(form[start:end])]
    if len(spans) == 1:
        return [Name(start, end, folded(form[start:end]))]
    return [Name(s, e, folded(form[s:e])) for (s, _), (_, e) in pairwise(spans)]


def _places(run: str, size: int) -> tuple[list[int], list[int]]:
    """For each of the `size` characters of a run's form: the start and end of what it stands for.

    Where they cannot be assigned, each stands for the whole run.
    """
    starts: list[int] = []
    ends: list[int] = []
    for start, end in clusters(run):
        count = len(composed(run[start:end]))
        starts += [start] * count
        ends += [end] * count
    return (starts, ends) if len(starts) == size else ([0] * size, [len(run)] * size)


def keys_of(text: str, language: str) -> list[str]:
    """Runs whose names are those of a text; of a run without spaces, its pairs."""
    numbers = [name.text for name in joined_numbers(text, language)]
    if text.isascii():
        return _ASCII_RUN.findall(text) + numbers
    kind, found = kinds(text), numbers
    for run in RUN.finditer(kind):
        start, end = run.span()
        if kind[start] != "u":
            found.append(text[start:end])
            continue
        form = text[start:end]
        if not unicodedata.is_normalized("NFKC", form) or "m" in kind[start:end]:
            form = folded(form)
        own = kinds(form)
        if own[:1] != "u" or own.strip("um"):  # it has characters that stand for several
            found += [name.text for name in names_of(form)]
            continue
        each = form if "m" not in own else [form[s:e] for s, e in clusters(form)]
        found += map(add, each, each[1:]) if len(each) > 1 else each
    return found


def joined_numbers(text: str, language: str) -> Iterator[Name]:
    """The numbers of a text whose thousands are separated, as digits alone."""
    for found in _thousands("," if language in POINTS else ".").finditer(text):
        digits = "".join(filter(str.isdecimal, found[0]))
        yield Name(*found.span(), folded(digits), False)


@cache
def _thousands(separator: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![\w.,])\d{{1,3}}([{re.escape(separator)}{_SPACERS}])\d{{3}}(?:\1\d{{3}}){{0,5}}"
        rf"(?!\d|\1\d)(?!\w)"
    )
