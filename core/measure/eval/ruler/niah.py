"""Needles: keys with values, hidden among noise, prose or needles of the same form.

There is one needle for each value. All keys and values of a document differ, and none occurs in the
prose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from uuid import UUID

from longctx.core.measure.case import CaseQuestion
from longctx.core.measure.eval.filling import Count, UnitStream, fill, spread
from longctx.core.measure.eval.ruler.making import NOISE, Materials, Words, ascending, spans

DIGITS = 7
NEEDLE = "One of the special magic {kind}s for {key} is: {value}."


@dataclass(frozen=True)
class NeedleTask:
    """Which needles a task hides, and among what.

    Attributes:
        haystack: noise, prose, or needles (with other keys).
        key: word (two words, joined) or uuid.
        value: number (of seven digits) or uuid.
        keys: number of keys.
        values: number of values of each key.
        asked: number of keys in the question.
    """

    haystack: str
    key: str
    value: str
    keys: int = 1
    values: int = 1
    asked: int = 1


def make(
    name: str, needles: NeedleTask, materials: Materials, draw: Random, length: int, count: Count
) -> tuple[str, CaseQuestion]:
    """A document with its needles, and the question for them.

    Raises:
        UsageError: the needles alone are longer than the document.
    """
    fresh = _Fresh(draw, materials)
    keys = [fresh.next(needles.key) for _ in range(needles.keys)]
    values = {key: [fresh.next(needles.value) for _ in range(needles.values)] for key in keys}
    lines = {value: _line(needles, key, value) for key in keys for value in values[key]}
    asked = draw.sample(keys, needles.asked)
    hidden = draw.sample(list(lines.values()), len(lines))
    places = ascending(draw, len(hidden))
    end = " " if needles.haystack == "prose" else "\n"
    pieces = [line + end for line in hidden]
    units = UnitStream(_filling(needles, materials, draw, fresh))

    def render(number: int) -> str:
        return "".join(spread(pieces, units.first(number), places)).rstrip() + "\n"

    text = fill(render, count, length, name)
    answers = tuple(value for key in asked for value in values[key])
    where = spans(text, [lines[value] for value in answers])
    return text, CaseQuestion(name, _question(needles, asked), answers, where)


def _line(needles: NeedleTask, key: str, value: str) -> str:
    return NEEDLE.format(kind=needles.value, key=key, value=value)


def _question(needles: NeedleTask, keys: list[str]) -> str:
    if len(keys) * needles.values == 1:
        return f"What is the special magic {needles.value} for {keys[0]}?"
    listed = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])}, and {keys[-1]}"
    return f"What are all the special magic {needles.value}s for {listed}?"


def _filling(
    needles: NeedleTask, materials: Materials, draw: Random, fresh: "_Fresh"
) -> Iterator[str]:
    if needles.haystack == "prose":
        yield from materials.prose.sentences(draw)
    while True:
        if needles.haystack == "noise":
            yield NOISE
        else:
            yield f"{_line(needles, fresh.next(needles.key), fresh.next(needles.value))}\n"


class _Fresh:
    """Draws keys and values that are new and do not occur in the prose."""

    def __init__(self, draw: Random, materials: Materials):
        self._draw, self._words, self._prose = draw, materials.words, materials.prose.text
        self._given: set[str] = set()

    def next(self, kind: str) -> str:
        while True:
            drawn = _drawn(kind, self._draw, self._words)
            if drawn not in self._given and drawn not in self._prose:
                self._given.add(drawn)
                return drawn


def _drawn(kind: str, draw: Random, words: Words) -> str:
    if kind == "number":
        return str(draw.randrange(10 ** (DIGITS - 1), 10**DIGITS))
    if kind == "uuid":
        return str(UUID(int=draw.getrandbits(128), version=4))
    return f"{draw.choice(words.adjectives)}-{draw.choice(words.nouns)}"
