"""Haystacks: prose of an exact number of tokens, with needles at exact positions.

Every paragraph is one line. Most tokenizers can be split between a line feed and a letter, so the
token counts of lines add up. The whole text is still tokenized, as a document is when it is read,
and corrected until its length is exact.
"""

import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import accumulate, cycle, islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.measure.prose import Prose
from longctx.core.sources.reader import Source
from longctx.core.tokens.safe_splits import plain_backend
from longctx.core.tokens.tokens import TokenStream

# Tokens of prose that can always be fitted to an exact count: some words, and room for padding.
LEAST_FILLER = 32
ATTEMPTS = 8  # corrections; one is enough where the counts of lines add up
VARIANTS = 16  # cuts of a paragraph, and padding words, to try
BESIDE = "There was nobody on the quay.\n"  # context of a line while its tokens are counted
PADDING = ("and", "so", "on")
ENDINGS = (".", "")
WORD = re.compile(r" ?(?:[^ ]{1,20}(?= |$)|[^ ]{1,4})")  # or a piece of a longer string


@dataclass(frozen=True)
class NeedlePlace:
    """Where a needle's line is.

    Attributes:
        token: index of its first token.
        start, end: byte offsets of the line, without the line feed.
    """

    token: int
    start: int
    end: int


@dataclass(frozen=True)
class Group:
    """Consecutive lines.

    Attributes:
        depth: the share of all prose before them, from 0 (the text begins with them) to 1 (it
            ends with them).
        lines: without line feeds.
    """

    depth: float
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines with their line feeds."""
        return "".join(f"{line}\n" for line in self.lines)


@dataclass(frozen=True)
class Haystack:
    """A text with its tokens, and the places of all lines that were hidden in it.

    Attributes:
        text: the whole text.
        places: where each line is, by group.
        ids: (N,) int64 token ids, as when it is read.
        starts: (N,) byte offsets at which the tokens start.
    """

    text: str
    places: tuple[tuple[NeedlePlace, ...], ...]
    ids: Tensor = field(repr=False, compare=False)
    starts: np.ndarray = field(repr=False, compare=False)

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """The tokens [first, end) that hold bytes [start, end).

        The first may begin before the bytes, and the last may end after them: a space before a
        value and a line feed after it can be parts of its tokens.
        """
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        return first, int(np.searchsorted(self.starts, end))


def depths(count: int) -> list[float]:
    """`count` depths, evenly spaced from 0 to 1; a single one is 0.5.

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
        prose: the text around the needles; shuffled again for every pass through it.

    Raises:
        UsageError: the tokenizer has no fast version.
    """

    def __init__(self, tokenizer: Any, prose: Prose):
        self.prose, self._stream = prose, TokenStream(tokenizer)
        self._backend = plain_backend(tokenizer.backend_tokenizer)
        (self._around,) = self._lengths([BESIDE * 2])
        self.sizes = dict(zip(prose.paragraphs, self._counts(prose.paragraphs), strict=True))

    def count(self, line: str) -> int:
        """Tokens of a line with its line feed, among other lines."""
        return self._counts([line])[0]

    def require_length(self, length: int, groups: Sequence[Group]) -> None:
        """Refuses a length that leaves too little prose between two depths.

        Args:
            length: tokens of the haystack.
            groups: by depth.

        Raises:
            UsageError: names the least length.
        """
        edges = [0.0, *(group.depth for group in groups), 1.0]
        shares = [after - before for before, after in pairwise(edges) if after > before]
        needed = sum(self._sizes(groups)) + math.ceil((LEAST_FILLER + 1) / min(shares))
        least = -(-needed // 100) * 100  # the same for all needles, which differ by a few tokens
        if length < least:
            lines = sum(len(group.lines) for group in groups)
            raise UsageError(
                f"a haystack of {length:,} tokens is too short",
                f"{lines} lines at {len(groups)} depths need {least:,} or more",
                "Give a larger --length, or fewer --depths or --needles.",
            )

    def build(self, groups: Sequence[Group], length: int, seed: str) -> Haystack:
        """A haystack of exactly `length` tokens.

        Of the P tokens of prose, round(depth * P) come before a group: with n tokens of groups
        before it, it begins at token n + round(depth * P).

        Args:
            groups: by depth.
            length: tokens of the whole text.
            seed: seed of the order of the prose.

        Raises:
            LongctxError: no exact length is possible with this tokenizer.
        """
        wanted = asked = _gaps(groups, length, self._sizes(groups))
        for _ in range(ATTEMPTS):
            filler = _Filler(self, random.Random(seed))
            parts = [
                part
                for n, g in zip(asked, groups, strict=False)
                for part in (filler.text(n), g.text)
            ]
            text = "".join([*parts, filler.text(asked[-1])])
            ids, starts = self._tokens(text)
            ends = [0, *accumulate(len(part.encode()) for part in parts)]
            tokens = [*(_token_at(starts, byte) for byte in ends), len(starts)]
            sizes = [after - before for before, after in pairwise(tokens)]
            wanted = _gaps(groups, length, sizes[1::2])
            if sizes[::2] == wanted:
                return Haystack(text, tuple(_places(groups, ends[1::2], starts)), ids, starts)
            asked = [n + w - got for n, w, got in zip(asked, wanted, sizes[::2], strict=True)]
        raise _inexact(length)

    def _sizes(self, groups: Sequence[Group]) -> list[int]:
        return [sum(self._counts(group.lines)) for group in groups]

    def _counts(self, lines: Iterable[str]) -> list[int]:
        texts = [f"{BESIDE}{line}\n{BESIDE}" for line in lines]
        return [length - self._around for length in self._lengths(texts)]

    def _lengths(self, texts: list[str]) -> list[int]:
        return [len(e) for e in self._backend.encode_batch(texts, add_special_tokens=False)]

    def _tokens(self, text: str) -> tuple[Tensor, np.ndarray]:
        """(N,) token ids of a text, as when it is read, and the (N,) bytes where they start."""
        read = [*self._stream.read(Source("haystack", None, BytesIO(text.encode())))]
        ids = torch.from_numpy(np.concatenate([part.ids for part in read])).long()
        return ids, np.concatenate([part.starts for part in read])


def _gaps(groups: Sequence[Group], length: int, sizes: list[int]) -> list[int]:
    """Tokens of prose before each group and after the last one."""
    prose = length - sum(sizes)
    edges = [0, *(round(group.depth * prose) for group in groups), prose]
    return [after - before for before, after in pairwise(edges)]


class _Filler:
    """An endless text, taken in pieces of exact length."""

    def __init__(self, builder: Builder, shuffler: random.Random):
        self._builder = builder
        self._paragraphs = self._shuffled(shuffler)

    def text(self, tokens: int) -> str:
        """The next lines, `tokens` tokens in all; the last one is cut to fit."""
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
        words = WORD.findall(line)
        while self._size(words) < tokens:
            words += WORD.findall(f" {next(self._paragraphs)}")
        most = bisect_right(range(1, len(words) + 1), tokens, key=lambda n: self._size(words[:n]))
        for kept in range(most, max(0, most - VARIANTS), -1):
            cut = "".join(words[:kept]).rstrip(" .,:;!?\"'*-—")
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
        return self._builder.count("".join(words))


def _places(
    groups: Sequence[Group], begins: list[int], starts: np.ndarray
) -> Iterator[tuple[NeedlePlace, ...]]:
    for group, begin in zip(groups, begins, strict=True):
        sizes = [len(line.encode()) for line in group.lines]
        firsts = accumulate((size + 1 for size in sizes), initial=begin)
        yield tuple(
            NeedlePlace(_token_at(starts, first), first, first + size)
            for first, size in zip(firsts, sizes, strict=False)
        )


def _token_at(starts: np.ndarray, byte: int) -> int:
    """The token that begins at a byte; at the end of the text, the number of tokens."""
    token = int(np.searchsorted(starts, byte))
    if token == len(starts) or starts[token] == byte:
        return token
    raise LongctxError(
        "cannot place a needle at an exact token",
        "no token of this tokenizer begins where a line does",
        "Use another model.",
    )


def _inexact(tokens: int) -> LongctxError:
    return LongctxError(
        f"cannot make a text of exactly {tokens:,} tokens",
        "the model's tokenizer gives lines other counts alone than together",
        "Use another model.",
    )
