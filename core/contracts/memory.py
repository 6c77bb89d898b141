"""What a model sees of a method (`Memory`) and what the pipeline sees of it (`Method`).

A method is one file in `core/methods/` with a frozen dataclass `Options` and a class `Method` of
the shape below; the folder is the registry. Nothing here knows any method.

Symbols, in every docstring and shape comment of the project: B batch, T new tokens, C cached
tokens, L layers, H query heads, G key/value heads, D head dimension, S positions in a window
(cached and new) or selected tokens, E embedding width, N tokens of the document, P of the prefix.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from longctx.core.model.adapter import Layer

Rows = dict[str, Tensor]  # tensor name -> (n, ...), one row per token
Groups = dict[str, Rows]  # group of shards -> its rows
Snapshot = dict[str, Tensor]


@dataclass(frozen=True)
class Place:
    """Where a method keeps its tensors.

    Attributes:
        device, dtype: of the model in use.
        tokens: about how many tokens it will hold; 0: nobody knows.
        room: bytes that they may take there; None: any number.
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    tokens: int = 0
    room: int | None = None

    def put(self, tensor: Tensor) -> Tensor:
        """The tensor on this device; floating-point ones in this dtype."""
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)


HERE = Place()


class Stored(Protocol):
    """The rows of a document on disk, one for each document token."""

    def rows(self, group: str, names: tuple[str, ...] | None = None) -> Generator[tuple[int, Rows]]:
        """A group's rows in order, in blocks: (first row, {name: (n, ...)}) on the CPU.

        Raises:
            StateMismatch: there is no such group or tensor, or it is damaged.
        """
        ...

    def take(self, group: str, rows: Tensor, names: tuple[str, ...] | None = None) -> Rows:
        """Chosen rows of a group, on the CPU.

        Args:
            group: the group's name.
            rows: ascending row numbers (S,), int64 on the CPU.
            names: the tensors wanted; all where None.
        """
        ...


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


class Chunked(Memory, Protocol):
    """A memory for a question.

    Attributes:
        chunk: tokens of the question read at a time, at most.
    """

    chunk: int


class Seen(NamedTuple):
    """What one token attends to in one layer.

    Attributes:
        q: its queries (H, 1, D), rotated to the last position.
        keys, values: (G, S, D), keys rotated to the positions 0, 1, ...
        total: (1,) int64 on the device, how many of them there are: the first ones, the token
            itself the last.
        length: of the window that they were rotated in; see `Rope.rotate`.
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    total: Tensor
    length: int


class Column(Protocol):
    """Keys or values of one layer, all tokens that were kept.

    Attributes:
        length: tokens.
    """

    length: int

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D) on the device, decoded; `index` (S,) there, ascending."""
        ...


class Columns(Protocol):
    """Position-free keys, and values, of one layer."""

    keys: Column
    values: Column


class Recalled(Chunked, Protocol):
    """A memory for one question and its answer, over what a method kept.

    Attributes:
        kept: tokens that it holds.
    """

    kept: int

    def begin_answer(self) -> None:
        """Says that the question has been read: what comes now are the answer's tokens."""
        ...

    def attended(self) -> float:
        """Tokens that a token of the answer attended to, mean over tokens and layers so far."""
        ...

    def scores(self, tokens: int) -> Scores:
        """How much each of the document's tokens was attended to; under 0: not at all."""
        ...


class Whole(Recalled, Protocol):
    """Such a memory over everything: of a method that lets go of nothing.

    A token of the answer attends by `attend`, or whoever decodes looks at what it would attend to.
    """

    def narrow(self, window: int) -> bool:
        """From now on attends to at most so many tokens at once; whether that is fewer than before.

        Raises:
            UsageError: it cannot be so few.
        """
        ...

    def look(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Seen:
        """Keeps one token of a layer with full attention, and selects for it; see `attend`."""
        ...

    def add(self, layer: Layer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps one token of such a layer; its keys and values (G, 1, D) as they are kept."""
        ...

    def kept_layer(self, index: int) -> Columns:
        """All that was kept of a layer without a sliding window."""
        ...


class Method(Memory, Protocol):
    """A reading method: a memory that can be saved, restored and asked.

    Attributes:
        chunk: tokens of the input that it reads next; it may change from chunk to chunk.
        depth: layers the model runs while reading (0: none, the tokens are all that is kept).
        gather: document and prefix tokens that are gathered for a question; None: all of them.
        edges: (first, last) document tokens that are always gathered.
        recalls: a question attends to what was kept (`recall`); else the tokens that score best
            (`score`) are recomputed with it.
        ways: methods of other names that answer from the same state, the usual one first; none:
            only this one does.

    It may also have `fill(tokens)`, which makes its memory as if so many tokens had been read, with
    random contents: by it the speed of late chunks is measured without reading what comes before.
    It may say `searches = False`: it keeps nothing that tells which tokens fit a question; and
    `rereads = True`: a document of less than a chunk may leave its snapshot out. One that keeps the
    group `embeddings` also has `embed(read)`: it runs a question through the model as `score` does,
    and gives the embeddings of its T tokens, int8 (T, heads, D) and float16 scales (T, heads).
    """

    chunk: int
    depth: int
    gather: int | None
    edges: tuple[int, int]
    recalls: bool
    ways: "Mapping[str, Method]"

    def __init__(self, options: Any, layers: tuple[Layer, ...], place: Place): ...

    def rows(self, skip: int = 0) -> Groups:
        """Per-token rows of the chunk just read, first dimension T - skip; handed out once.

        They are written while reading goes on: nothing changes these tensors any more.

        Args:
            skip: first tokens of the chunk that get no rows: they are of the prefix, and not of
                the document. What is needed of them is kept for the snapshot.
        """
        ...

    def snapshot(self) -> Snapshot:
        """What the store must keep for a later process to go on from here.

        It is written while reading goes on: nothing changes these tensors any more.
        """
        ...

    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Takes up a snapshot and what else it needs of a document.

        Args:
            snapshot: tensors on the CPU, in the dtype in which they were computed.
            stored: the document's rows.
            reading: reading will go on, which may replace the files under `stored`; else they
                stay as long as this method is used.

        Raises:
            StateMismatch: it is none of this method with these options and layers.
        """
        ...

    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Scores every document token against a question; leaves the memory as it was.

        Args:
            read: runs the question's T tokens through the model into the memory it is given,
                `chunk` of that memory at a time.
            scored: (T,) bool, the tokens of the user's own words: only they score.
            stored: the document's rows.

        Raises:
            StateMismatch: the rows are not such as `rows` gives.
        """
        ...

    def recall(self) -> Recalled:
        """A memory for one question, where `recalls`; this one stays as it is."""
        ...

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """The most bytes that a snapshot after so many tokens takes.

        Args:
            tokens: of prefix and document.
            itemsize: bytes of an element of keys and values.
        """
        ...

    def row_bytes(self) -> int:
        """Bytes of rows that the store keeps for each token."""
        ...

    def held_bytes(self, tokens: int) -> "Held":
        """Memory that it holds after so many tokens, beside what a chunk needs for a moment."""
        ...


@dataclass(frozen=True)
class Held:
    """Bytes of memory that a method holds while it reads.

    Attributes:
        device: where the model computes.
        host: pinned, beside a device that is not the CPU.
    """

    device: int = 0
    host: int = 0


def can_be_made_again(method: Method, tokens: int) -> bool:
    """Whether a snapshot may be left out: to read the tokens again is less than an answer takes.

    Args:
        method: that has read.
        tokens: of prefix and document.
    """
    least = min(method.chunk, method.gather or 0)
    return getattr(method, "rereads", False) and tokens < least
