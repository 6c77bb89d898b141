"""What a model sees of a method (`Memory`) and what the pipeline sees of it (`Method`).

A method is one file in `core/methods/` with a frozen dataclass `Options` and a class `Method` of
the shape below; the folder is the registry. Nothing here knows any method.

Symbols, in every docstring and shape comment of the project: B batch, T new tokens, C cached
tokens, L layers, H query heads, G key/value heads, D head dimension, S positions in a window
(cached and new) or selected tokens, E embedding width, N tokens of the document, P of the prefix.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from longctx.core.model import Layer

Rows = dict[str, Tensor]  # tensor name -> (n, ...), one row per token
Snapshot = dict[str, Tensor]


class Memory(Protocol):
    """The whole of a method as the model sees it: what each layer's new tokens attend to."""

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends the new tokens of one layer to whatever this memory keeps.

        Args:
            layer: the layer's index, scale, window and rotary embedding.
            q: position-free queries (H, T, D).
            k: position-free keys (G, T, D).
            v: values (G, T, D).

        Returns:
            The attention output (H, T, D).

        Raises:
            EarlyExit: nothing above this layer's projections is needed.
        """
        ...

    def end_chunk(self) -> None:
        """Closes a whole chunk: evict, vote, offload. Not called after a shorter tail."""
        ...


@dataclass(frozen=True)
class Scores:
    """How well each document token fits a question.

    Attributes:
        raw: (N,) the token's own score.
        pooled: (N,) the score that ranks; ties go to the higher raw score, then the earlier token.
    """

    raw: Tensor
    pooled: Tensor


class Method(Memory, Protocol):
    """A reading method: a memory that can be saved, restored and asked.

    Attributes:
        chunk: tokens of the input read at a time.
        depth: layers the model runs while reading (0: none, the tokens are all that is kept).
        gather: document and prefix tokens recomputed for a question; None: as many as fit.
        edges: (first, last) document tokens that are always gathered.
        group: the group of shards that its rows go to; empty: it keeps none.
    """

    chunk: int
    depth: int
    gather: int | None
    edges: tuple[int, int]
    group: str

    def __init__(self, options: Any, layers: tuple[Layer, ...]): ...

    def rows(self) -> Rows:
        """Per-token rows of the chunk just read, first dimension T; they are handed out once.

        They are written while reading goes on: nothing changes these tensors any more.
        """
        ...

    def snapshot(self) -> Snapshot:
        """What the store must keep for a later process to go on from here.

        It is written while reading goes on: nothing changes these tensors any more.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Takes up a snapshot, on the device and in the dtype of the model in use.

        Raises:
            StateMismatch: it is none of this method with these options and layers.
        """
        ...

    def score(self, read: Callable[[Memory], None], scored: Tensor, rows: Iterable[Rows]) -> Scores:
        """Scores every document token against a question; leaves the memory as it was.

        Args:
            read: runs the question's T tokens through the model into the memory it is given.
            scored: (T,) bool, the tokens of the user's own words: only they score.
            rows: the document's rows of the group `self.group`, in order, in blocks of any size.

        Raises:
            StateMismatch: the rows are not such as `rows` gives.
        """
        ...

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """The most bytes that a snapshot after so many tokens takes.

        Args:
            tokens: of prefix and document.
            itemsize: bytes of an element of keys and values.
        """
        ...

    @staticmethod
    def bytes_per_token(options: Any, head_dim: int) -> int:
        """Bytes of rows the store keeps for each token."""
        ...
