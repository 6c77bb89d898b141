"""Truncation: the first and the last tokens that fit the model's window, half and half.

The state is the document's tokens alone; a question recomputes both ends with itself. A baseline:
what stands in the middle is never seen.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.memory import (
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
from longctx.core.model import Layer


@dataclass(frozen=True)
class Options:
    """Truncation has no options: as much is taken as there is room for."""


class Method(Memory):
    """Keeps no memory while reading; both ends of the document are wanted, as far as they go.

    Args:
        options: `Options`.
        layers: the model's layers.
        place: is not used.
    """

    chunk, depth, gather = 4096, 0, sys.maxsize
    edges = (sys.maxsize, sys.maxsize)  # cut to what fits, in proportion
    recalls, searches, ways = False, False, {}

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        self.options = options

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Is never reached: reading runs no layers."""
        raise AssertionError("truncation reads nothing before the question")

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
        """Has no scores: the place in the document decides."""
        return Scores(torch.zeros(0), torch.zeros(0))

    def recall(self) -> Recalled:
        """Is never reached: gathered tokens are recomputed."""
        raise AssertionError("truncation keeps nothing to recall")

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Nothing."""
        return 0

    def row_bytes(self) -> int:
        """No rows."""
        return 0

    def held_bytes(self, tokens: int) -> Held:
        """Nothing."""
        return Held()
