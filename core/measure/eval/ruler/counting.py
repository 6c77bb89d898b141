"""Counting: which words of a long list are the most frequent?

Common words: some are ten times as frequent as the rest. Frequent words: frequency falls with rank,
as in natural language.
"""

import math
from collections.abc import Iterator
from itertools import chain, repeat
from random import Random
from string import ascii_lowercase

from longctx.core.measure.case import CaseQuestion
from longctx.core.measure.eval.filling import Count, UnitStream, fill
from longctx.core.measure.eval.ruler.making import Words, is_said

COMMON = 10
OFTEN, SELDOM = 30, 3
SHORT, SHORT_OFTEN, SHORT_SELDOM = 4096, 6, 1  # documents of fewer tokens have fewer of each

ALPHA = 2.0
ZETA = math.pi**2 / 6  # of ALPHA
LETTERS = 6
PER_WORD = 50  # tokens of the document per different word
LEAST = 80  # words from which no two of the first five ranks have the same count
DOTS = "..."  # has the first rank, and is not asked for

ASK_COMMON = f"Which {COMMON} words stand most often in the numbered list? Name these alone."
ASK_FREQUENT = (
    f"Leaving the dots ({DOTS}) aside, which three made-up words stand most often in the text? "
    "Name these alone."
)


def make_common(
    name: str, words: Words, draw: Random, length: int, count: Count
) -> tuple[str, CaseQuestion]:
    """A shuffled, numbered list of words, and the question for the ten most frequent.

    Raises:
        UsageError: the ten alone are longer than the document.
    """
    often, seldom = (SHORT_OFTEN, SHORT_SELDOM) if length < SHORT else (OFTEN, SELDOM)
    common = draw.sample([word for word in words.whole if not is_said(word, ASK_COMMON)], COMMON)
    others = UnitStream(_others(words, common, draw))
    order = draw.getrandbits(64)

    def render(number: int) -> str:
        listed = common * often + others.first(number) * seldom
        Random(order).shuffle(listed)
        return " ".join(f"{place}. {word}" for place, word in enumerate(listed, 1)) + "\n"

    text = fill(render, count, length, name)
    return text, CaseQuestion(name, ASK_COMMON, tuple(common))


def _others(words: Words, common: list[str], draw: Random) -> Iterator[str]:
    """All other words, then pairs of them, since a document can need more than there are."""
    single = [word for word in words.every if word not in common]
    yield from draw.sample(single, len(single))
    known: set[str] = set()
    while True:
        pair = f"{draw.choice(single)}-{draw.choice(single)}"
        if pair not in known:
            known.add(pair)
            yield pair


def make_frequent(name: str, draw: Random, length: int, count: Count) -> tuple[str, CaseQuestion]:
    """A text of made-up words, and the question for the three most frequent.

    Raises:
        UsageError: the shortest text that tells them apart is longer than the document.
    """
    words: list[str] = [DOTS]
    while len(words) < max(length // PER_WORD, 5):
        word = "".join(draw.choices(ascii_lowercase, k=LETTERS))
        words += [word] * (word not in words[:5] and not is_said(word, ASK_FREQUENT))
    order = draw.getrandbits(64)

    def render(number: int) -> str:
        shares = ((LEAST + number) / ZETA / rank**ALPHA for rank in range(1, len(words) + 1))
        listed = list(chain(*(repeat(word, int(n)) for word, n in zip(words, shares, strict=True))))
        Random(order).shuffle(listed)
        return " ".join(listed) + "\n"

    text = fill(render, count, length, name)
    return text, CaseQuestion(name, ASK_FREQUENT, tuple(words[1:4]))
