"""Full attention: nothing is left out, for documents that fit the model's window.

The state is the document's tokens alone; a question recomputes all of them with itself. This is the
baseline that every other method must equal inside its limits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.memory import Memory, Rows, Scores, Snapshot
from longctx.core.model import Layer


@dataclass(frozen=True)
class Options:
    """Full attention has no options."""


class Method(Memory):
    """Keeps no memory while reading; every token is wanted for every question.

    Args:
        options: `Options`.
        layers: the model's layers.
    """

    chunk, depth, gather = 4096, 0, None
    edges = (0, 0)
    group = ""

    def __init__(self, options: Options, layers: tuple[Layer, ...]):
        self.options = options
        self._seen = 0

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Is never reached: reading runs no layers."""
        raise AssertionError("full attention reads nothing before the question")

    def end_chunk(self) -> None:
        """Nothing to close."""

    def rows(self) -> Rows:
        """Keeps no rows."""
        return {}

    def snapshot(self) -> Snapshot:
        """Keeps nothing."""
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        """Has nothing to take up."""

    def score(self, read: Callable[[Memory], None], scored: Tensor, rows: Iterable[Rows]) -> Scores:
        """Has no scores: all tokens are gathered."""
        return Scores(torch.zeros(0), torch.zeros(0))

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Nothing."""
        return 0

    @staticmethod
    def bytes_per_token(options: Options, head_dim: int) -> int:
        """No rows."""
        return 0
