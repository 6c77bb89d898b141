"""A memory of nothing: the document's tokens are all that is kept, and are recomputed when asked.

What the methods share that run no layers before there is a question. Which tokens are recomputed is
theirs to say.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from longctx.core.contracts.memory import (
    HERE,
    Chunked,
    Groups,
    Held,
    Memory,
    Place,
    Recalled,
    Scores,
    Snapshot,
    Stored,
)
from longctx.core.model.adapter import Layer


class TokensAlone(Memory):
    """Keeps no memory while reading.

    Args:
        options: the method's.
        layers, place: are not used.
    """

    chunk, depth = 4096, 0
    recalls, searches, ways = False, False, {}

    def __init__(self, options: Any, layers: tuple[Layer, ...], place: Place = HERE):
        self.options = options

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Is never reached: reading runs no layers."""
        raise AssertionError("nothing is read before the question")

    def end_chunk(self) -> None:
        """Nothing to close."""

    def rows(self, skip: int = 0) -> Groups:
        """Keeps no rows."""
        return {}

    def snapshot(self) -> Snapshot:
        """Keeps nothing."""
        return {}

    def restore(
        self, snapshot: Snapshot, stored: Stored | None = None, reading: bool = True
    ) -> None:
        """Has nothing to take up."""

    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Has no scores: no token fits a question better than another."""
        return Scores(torch.zeros(0), torch.zeros(0))

    def recall(self) -> Recalled:
        """Is never reached: tokens are recomputed."""
        raise AssertionError("nothing is kept to recall")

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Nothing."""
        return 0

    def row_bytes(self) -> int:
        """No rows."""
        return 0

    def held_bytes(self, tokens: int) -> Held:
        """Nothing."""
        return Held()
