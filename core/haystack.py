"""Haystacks: prose of exactly so many tokens, with needles that begin at exactly one of them.

Every paragraph is one line: where a line feed and a letter meet, tokenizers can be cut, and lines
have the counts together that they have alone. What is built is measured as a whole all the same,
and corrected until it is exact. Knows nothing of models, of questions, or of what makes a needle.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import cycle, islice
from typing import Any

from longctx.core.cuts import plain_backend
from longctx.core.errors import LongctxError, UsageError

# A gap in which an exact count is always found: some words of prose and room to pad them.
LEAST_FILLER = 32
ATTEMPTS = 8  # corrections; one is enough where lines are counted one by one, as nearly everywhere
VARIANTS = 16  # places to cut a paragraph at, and words to pad it with
BESIDE = "There was nobody on the quay.\n"  # stands around a line while its tokens are counted
PADDING = ("and", "so", "on")
ENDINGS = (".", "")


@dataclass(frozen=True)
class Placed:
    """Where a needle stands.

    Attributes:
        token: index of its first token.
        start, end: byte offsets of its line, without the line feed.
    """

    token: int
    start: int
    end: int


@dataclass(frozen=True)
class Haystack:
    """A text and the places of its needles, in the order they were given."""

    text: str
    needles: tuple[Placed, ...]


def sample_paragraphs() -> list[str]:
    """The prose that comes with the package: one line a paragraph, without headings and lists."""
    text = (resources.files("longctx.samples") / "harbour-book.md").read_text("utf-8")
    lines = [" ".join(block.split()) for block in text.split("\n\n")]
    return [line for line in lines if line and not line.startswith(("#", "- "))]


def depths(count: int) -> list[float]:
    """`count` depths, evenly spaced from 0 to 1; a single one is in the middle.

    Raises:
        UsageError: fewer than one.
    """
    if count < 1:
        raise UsageError(f"cannot place needles at {count} depths", "", "Give --depths 1 or more.")
    return [0.5] if count == 1 else [number / (count - 1) for number in range(count)]


class Builder:
    """Makes haystacks for one tokenizer.

    Args:
        tokenizer: a fast transformers tokenizer.
        paragraphs: the prose, one line each; shuffled anew for every pass through them.
    """

    def __init__(self, tokenizer: Any, paragraphs: list[str]):
        self._backend = plain_backend(tokenizer.backend_tokenizer)
        self._around = self._length(BESIDE * 2)
        self.sizes = {line: self.count(line) for line in paragraphs}

    def count(self, line: str) -> int:
        """Tokens of a line and its line feed, between other lines."""
        return self._length(f"{BESIDE}{line}\n{BESIDE}") - self._around

    def require_length(self, length: int, needles: list[str], places: list[float]) -> None:
        """Refuses a length in which a gap before or after the needles would be too narrow to fill.

        Args:
            length: tokens of the haystack.
            needles: lines that stand next to each other.
            places: the depths they will be put at.

        Raises:
            UsageError: with the least length.
        """
        sides = [side for depth in places for side in (depth, 1 - depth) if side > 0]
        needed = sum(map(self.count, needles)) + math.ceil((LEAST_FILLER + 1) / min(sides))
        least = -(-needed // 100) * 100  # the same for all needles, which differ by a few tokens
        if length < least:
            raise UsageError(
                f"a haystack of {length:,} tokens is too short",
                f"the needles and {len(places)} depths need {least:,} or more",
                "Give a larger --length or fewer --depths.",
            )

    def build(self, needles: list[str], length: int, depth: float, seed: str) -> Haystack:
        """A haystack of exactly `length` tokens.

        The needles, n tokens with their line feeds, stand next to each other and begin at token
        round(depth * (length - n)).

        Args:
            needles: one line each.
            length: tokens of the whole text.
            depth: 0 (the text begins with them) to 1 (it ends with them).
            seed: decides the order of the prose.

        Raises:
            LongctxError: the tokenizer gives no exact count.
        """
        lines = "".join(f"{needle}\n" for needle in needles)
        size = sum(map(self.count, needles))
        before = round(depth * (length - size))
        after = length - size - before
        for _ in range(ATTEMPTS):
            filler = _Filler(self, random.Random(seed))
            head = filler.text(before)
            text = head + lines + filler.text(after)
            encoding = self._backend.encode(text, add_special_tokens=False)
            start = _token_at(encoding, len(head))
            size = _token_at(encoding, len(head) + len(lines)) - start
            late = start - round(depth * (length - size))
            if not late and len(encoding) == length:
                return Haystack(text, tuple(_places(encoding, text, len(head), needles)))
            before, after = before - late, after + late + length - len(encoding)
        raise _inexact(length)

    def _length(self, text: str) -> int:
        return len(self._backend.encode(text, add_special_tokens=False))


class _Filler:
    """An endless text, of which pieces of exact lengths are taken."""

    def __init__(self, builder: Builder, shuffler: random.Random):
        self._builder = builder
        self._paragraphs = self._shuffled(shuffler)

    def text(self, tokens: int) -> str:
        """The next lines, of `tokens` tokens; the last of them is cut to fit."""
        lines = []
        while tokens > 0:
            line = next(self._paragraphs)
            size = self._builder.sizes[line]
            if size != tokens and size + LEAST_FILLER > tokens:
                line, size = self._fitted(line, tokens), tokens
            lines.append(f"{line}\n")
            tokens -= size
        return "".join(lines)

    def _shuffled(self, shuffler: random.Random) -> Iterator[str]:
        paragraphs = list(self._builder.sizes)
        while True:
            shuffler.shuffle(paragraphs)
            yield from paragraphs

    def _fitted(self, line: str, tokens: int) -> str:
        """A line of exactly `tokens` tokens that begins like `line`."""
        words = line.split(" ")
        while self._size(words) < tokens:
            words += next(self._paragraphs).split(" ")
        most = bisect_right(range(1, len(words) + 1), tokens, key=lambda n: self._size(words[:n]))
        for kept in range(most, max(0, most - VARIANTS), -1):
            cut = " ".join(words[:kept]).rstrip(".,:;!?\"'*-—")
            for ending in ENDINGS:
                for extra in range(VARIANTS):
                    fit = " ".join([cut, *islice(cycle(PADDING), extra)]) + ending
                    size = self._builder.count(fit)
                    if size == tokens:
                        return fit
                    if size > tokens:
                        break
        raise _inexact(tokens)

    def _size(self, words: list[str]) -> int:
        return self._builder.count(" ".join(words))


def _places(encoding: Any, text: str, start: int, needles: list[str]) -> Iterator[Placed]:
    for needle in needles:
        byte = len(text[:start].encode())
        yield Placed(_token_at(encoding, start), byte, byte + len(needle.encode()))
        start += len(needle) + 1


def _token_at(encoding: Any, char: int) -> int:
    """The token that begins at a character; at the end of the text the one that would follow."""
    if char == encoding.token_to_chars(len(encoding) - 1)[1]:
        return len(encoding)
    token = encoding.char_to_token(char)
    if token is None or encoding.token_to_chars(token)[0] != char:
        raise LongctxError(
            "cannot place a needle at an exact token",
            "no token of this tokenizer begins where a line does",
            "Use another model.",
        )
    return token


def _inexact(tokens: int) -> LongctxError:
    return LongctxError(
        f"cannot make a text of exactly {tokens:,} tokens",
        "the model's tokenizer gives lines other counts alone than together",
        "Use another model.",
    )
