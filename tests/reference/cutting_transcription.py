"""A literal transcription of how docs/format.md says that a part of a source is cut into passages.

Only where sentences and lines end is taken from the code (`core/passages/sentences.py`).
"""

import numpy as np

from longctx.core.passages.cutting import Sizes
from longctx.core.passages.sentences import ends
from longctx.core.store.document import Document

DEFINITIONS = [
    *("async def", "def", "class", "function", "func", "fn", "pub", "impl", "struct", "interface"),
    *("export", "public", "private", "static", "CREATE"),
]


def passages(text: str, places: list[int], sizes: Sizes) -> list[int]:
    """The first token of each passage.

    Args:
        text: with surroundings.
        places: the character in which each token begins, and the end.
        sizes: of passages.
    """
    count = len(places) - 1
    strengths: dict[int, float] = {}  # of the ends before tokens
    for end in ends(text, places[0], places[-1]):
        later = [token for token in range(1, count) if places[token] >= end]
        if later and places[0] < end:
            strengths[later[0]] = strength(text, end)
    starts = [0] if count > 0 else []
    while starts and count - starts[-1] > sizes.most:
        begin = starts[-1]
        after = next_start(text, places, begin, strengths, sizes)
        if after == count:
            break
        starts.append(after)
    return starts


def next_start(
    text: str, places: list[int], begin: int, strengths: dict[int, float], sizes: Sizes
) -> int:
    """The token before which the passage from `begin` on ends."""

    def between(low: int, high: int) -> list[int]:
        return [end for end in [*strengths, len(places) - 1] if low <= end - begin <= high]

    def fits(end: int) -> tuple[float, int]:
        return strengths[end] - abs(end - begin - sizes.usual) / sizes.usual, end

    if good := between(sizes.least, sizes.most):
        return max(good, key=fits)
    if early := between(1, sizes.least - 1):
        return max(early)
    if whole := between(sizes.most + 1, sizes.whole):
        return min(whole)
    for end in range(begin + sizes.usual, begin + sizes.least, -1):
        at = places[end]
        if any(character.isspace() for character in text[max(0, at - 1) : at + 1]):
            return end
    return begin + sizes.usual


def strength(text: str, end: int) -> float:
    """How well a passage ends before a character."""
    if text[end - 1] != "\n":
        return 1.0
    lines, before = text[end:].split("\n"), text[: end - 1].split("\n")
    if not lines[0].strip() and len(lines) > 1:
        return 0.5
    if begins_section(lines[0].lstrip()):
        return 2.6 if lines[0][0].isspace() else 3.0
    return 2.2 if not before[-1].strip() else 1.3


def begins_section(line: str) -> bool:
    """Whether a line is a heading, or the first of a definition or of a message."""
    marks = len(line) - len(line.lstrip("#"))
    if 1 <= marks <= 6:
        return line[marks : marks + 1] in (" ", "\t") and len(line) > marks
    if line.startswith("From "):
        address = line.split(" ")[1].split("\t")[0]
        name, at, host = address.partition("@")
        return bool(name and at and (host[:1].isalnum() or host[:1] == "_"))
    if line.startswith("@"):
        return line[1:2].isalnum() or line[1:2] == "_"
    for word in DEFINITIONS:
        after = line[len(word) : len(word) + 1]
        if line.startswith(word) and not (after.isalnum() or after == "_"):
            return True
    return False


def tables(document: Document, run: int, shift: int, sizes: Sizes) -> list[list[tuple[int, int]]]:
    """The source and first token of each passage, for each table of a document.

    Args:
        document: open; a text of few bytes.
        run: tokens of one.
        shift: tokens after its first in which the cutting of a source starts again.
        sizes: of passages.
    """
    found: list[list[tuple[int, int]]] = [[] for _ in range(0, document.manifest.tokens, run)]
    for number, source in enumerate(document.manifest.sources):
        if not source.tokens:
            continue
        text = document.text(number, 0, source.size).decode(source.codec, "replace")
        first, end = source.first_token, source.first_token + source.tokens
        starts = document.array_take("tokens", np.arange(first, end), "starts").tolist()
        places = [*(character_at(text, start, source.codec) for start in starts), len(text)]
        borders = [border for border in range(0, end, run) if border > first]
        begins = [0, *(restart(text, places, border - first, shift) for border in borders)]
        for border, begin, after in zip(
            [first, *borders], begins, [*begins[1:], None], strict=True
        ):
            part = places[begin : None if after is None else after + 1]
            own = [first + begin + start for start in passages(text, part, sizes)]
            found[border // run] += [(number, token) for token in own]
    return found


def restart(text: str, places: list[int], token: int, shift: int) -> int:
    """Where the cutting of a source starts again, from one of its tokens on."""
    last = min(token + shift, len(places) - 1)
    for end in ends(text, places[token], len(text)):
        for later in range(token, last):
            if places[later] >= end:
                return later
    return last


def character_at(text: str, byte: int, encoding: str) -> int:
    """The character of a text that has a byte."""
    number = 0
    for character in text:
        byte -= len(character.encode(encoding, "replace"))
        if byte < 0:
            break
        number += 1
    return number
