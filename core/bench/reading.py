"""A document of random tokens, which needs no tokenizer, and a writer that keeps nothing."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from longctx.core.store.behind import WriterBehind

PIECE = 1 << 16  # tokens
TOKEN_BYTES = 4  # of text


class RandomReading:
    """Reads random tokens, each with four bytes of text; goes in the place of a `Reading`.

    Args:
        tokens: of the document.
        vocabulary: ids to draw from.
        writer: gets text and tokens, as the model has read them.
    """

    def __init__(self, tokens: int, vocabulary: int, writer: WriterBehind):
        generator = torch.Generator().manual_seed(0)
        self._ids = torch.randint(vocabulary, (tokens,), generator=generator, dtype=torch.int32)
        self._writer = writer
        self._digest = hashlib.sha256()
        self.tokens = self.bytes = self.forced_splits = 0
        self.skipped: list[dict[str, Any]] = []
        self.changed: list[str] = []

    @contextmanager
    def ids(self) -> Iterator[Iterator[Tensor]]:
        """The token ids in pieces (n,) int64, in a context."""
        yield (piece.long() for piece in self._ids.split(PIECE))

    def store(self, tokens: int = sys.maxsize) -> None:
        """Hands on the first `tokens` of the document, and their text."""
        if not self.tokens:
            self._writer.begin_source("random", None, None, "utf-8")
        ids = self._ids[self.tokens : tokens]
        if not len(ids):
            return
        starts = torch.arange(self.tokens, self.tokens + len(ids)) * TOKEN_BYTES
        text = text_of(ids)
        self._digest.update(text)
        self._writer.append("tokens", {"ids": ids, "starts": starts})
        self._writer.add_bytes(text)
        self.tokens, self.bytes = self.tokens + len(ids), self.bytes + len(text)
        if self.tokens == len(self._ids):
            self._writer.end_source(self.bytes, self._digest.hexdigest(), "utf-8", 0)

    def report(self) -> dict[str, Any]:
        """Nothing is told of it."""
        return {}


def text_of(ids: Tensor) -> bytes:
    """Three letters and a space for each of the ids (n,)."""
    letters = [97 + (ids >> shift & 15) for shift in (0, 4, 8)]
    return (
        torch.stack([*letters, torch.full_like(ids, 32)], dim=1).to(torch.uint8).numpy().tobytes()
    )


class Nowhere:
    """Keeps nothing of what it is given; goes in the place of a `Writer`."""

    begun = None

    def ignore(self, *args: Any, **named: Any) -> None:
        """Takes anything."""

    begin_source = add_bytes = end_source = append = checkpoint = complete = ignore

    def growth(self, snapshot: Any) -> int:
        """No bytes."""
        return 0
