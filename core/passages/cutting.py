"""Cuts a text into passages of about 128 tokens at the ends of sentences and lines.

Among the ends that a passage may have, the strongest wins: one before a heading or a definition,
after a blank line, at the end of a line, at the end of a sentence, in this order. So prose is cut
at sentences and paragraphs, code at definitions, tables and logs at whole rows. Knows no documents.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longctx.core.passages.sentences import ends


class Sizes(NamedTuple):
    """How long passages are, in tokens.

    Attributes:
        usual: where a passage can end anywhere.
        least, most: where a sentence or line ends in between.
        whole: of a sentence or line that stays whole.
    """

    usual: int = 128
    least: int = 64
    most: int = 160
    whole: int = 256


SIZES = Sizes()
_HEADING = re.compile(
    r"#{1,6}[ \t]|(?:async[ ]def|def|class|function|func|fn|pub|impl|struct|interface|export|public"
    r"|private|static|@\w+|CREATE|From[ ]\S+@)\b"
)
# How much an end is preferred; a passage of the wrong size loses up to half a point.
_SENTENCE, _LINE, _PARAGRAPH, _INNER, _OUTER, _BEFORE_BLANK = 1.0, 1.3, 2.2, 2.6, 3.0, 0.5


def cut(text: str, places: np.ndarray) -> list[int]:
    """Where passages begin.

    Args:
        text: surroundings before the first and after the last token help to find ends.
        places: (n + 1,) ascending, the character in which each token begins, and the end.

    Returns:
        Tokens, ascending, the first one 0; none if there are no tokens. No passage has more than
        `SIZES.whole` tokens.
    """
    count = len(places) - 1
    if count < 1:
        return []
    found = np.array(ends(text, int(places[0]), int(places[-1])), np.int64)
    tokens = np.searchsorted(places, found)  # the first token that begins at or after each end
    used = (tokens > 0) & (tokens < count) & np.append(tokens[1:] != tokens[:-1], True)
    tokens, found = tokens[used], found[used]
    strong = [_strength(text, place) for place in found.tolist()]
    return _starts([*tokens.tolist(), count], [*strong, _OUTER], text, places)


def _starts(
    tokens: Sequence[int], strong: Sequence[float], text: str, places: np.ndarray
) -> list[int]:
    """The first token of each passage, from the tokens before which one can end."""
    starts, begin, low = [0], 0, 0
    while tokens[-1] - begin > SIZES.most:
        high = low
        best: tuple[float, int] | None = None
        while tokens[high] - begin <= SIZES.most:
            size = tokens[high] - begin
            if size >= SIZES.least:
                fits = strong[high] - abs(size - SIZES.usual) / SIZES.usual
                best = max(best or (fits, high), (fits, high))
            high += 1
        if best is not None:
            low = best[1] + 1
            begin = tokens[best[1]]
        elif high > low:  # what follows is long: end early
            low = high
            begin = tokens[high - 1]
        elif tokens[high] - begin <= SIZES.whole:
            low = high + 1
            begin = tokens[high]
        else:
            begin = _between_words(text, places, begin)
        if begin == tokens[-1]:
            break
        starts.append(begin)
    return starts


def _between_words(text: str, places: np.ndarray, begin: int) -> int:
    """Where a long line is cut: at the last word that the usual size reaches."""
    for token in range(begin + SIZES.usual, begin + SIZES.least, -1):
        place = int(places[token])
        if text[place : place + 1].isspace() or text[place - 1 : place].isspace():
            return token
    return begin + SIZES.usual


def _strength(text: str, place: int) -> float:
    """How well a passage can end before a character."""
    if text[place - 1 : place] != "\n":
        return _SENTENCE
    following = text[place : place + 64]
    line = following.partition("\n")[0]
    own = line.lstrip()
    if not own and "\n" in following:
        return _BEFORE_BLANK
    if _HEADING.match(own):
        return _OUTER if own == line else _INNER
    before = text[max(0, place - 64) : place - 1]
    return _PARAGRAPH if not before.rpartition("\n")[2].strip() else _LINE
