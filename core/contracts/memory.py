"""Memories: what the model and the decode policies see of a reading method.

Symbols, in every docstring and shape comment of the project: B batch, T new tokens, C cached
tokens, L layers, H query heads, G key/value heads, D head dimension, S positions in a window
(cached and new) or selected tokens, E embedding width, N tokens of the document, P of the prefix.
"""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from longctx.core.common.contract import Contract
from longctx.core.model.adapter import Layer

Rows = dict[str, Tensor]  # tensor name -> (n, ...), one row per token
Groups = dict[str, Rows]  # group of shards -> its rows
Snapshot = dict[str, Tensor]


@dataclass(frozen=True)
class Place:
    """Where a method keeps its tensors.

    Attributes:
        device, dtype: those of the model in use.
        tokens: roughly how many tokens it will hold; 0 if unknown.
        room: bytes that they may take there, or on each device of several; None for no limit.
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    tokens: int = 0
    room: int | None = None

    def put(self, tensor: Tensor) -> Tensor:
        """The tensor on this device; a floating-point one in this dtype."""
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def of(self, layer: Layer) -> "Place":
        """The place of what one layer keeps: where the layer computes."""
        return self if layer.device is None else replace(self, device=layer.device)


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
            names: the tensors needed; None for all.
        """
        ...


class Memory(Protocol):
    """What the model sees of a method: each layer's new tokens attend to what it keeps.

    Attributes:
        on_one_device: all layers are kept where the model begins, wherever they compute; else what
            is kept of each is on the layer's device.
    """

    on_one_device: ClassVar[bool] = False

    @abstractmethod
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


@dataclass(frozen=True)
class Scores:
    """How well each document token matches a question.

    Attributes:
        raw: (N,) the token's own score.
        pooled: (N,) the score that ranks; ties go to the higher raw score, then the earlier token.
    """

    raw: Tensor
    pooled: Tensor


class Chunked(Memory, Protocol):
    """A memory for a question."""

    @property
    def chunk(self) -> int:
        """Tokens of the question read at a time, at most."""
        ...


class Seen(NamedTuple):
    """What one token attends to in one layer.

    Attributes:
        q: its queries (H, 1, D), rotated to the last position.
        keys, values: (G, S, D), keys rotated to the positions 0, 1, ...
        total: (1,) int64 on the device, how many of these S count: the first ones, of which the
            token itself is the last.
        length: of the window in which they were rotated; see `Rope.rotate`.
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    total: Tensor
    length: int


class Column(Protocol):
    """Keys or values of one layer, all tokens that were kept."""

    @property
    def length(self) -> int:
        """How many."""
        ...

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D) on the device, decoded; `index` is (S,), there too, ascending."""
        ...


class Columns(NamedTuple):
    """Position-free keys, and values, of one layer."""

    keys: Column
    values: Column


class Attempt(Memory, Protocol):
    """Some layers read a token with what is on the device, again until nothing is missing.

    What is missing counts as zero: the work is the same whatever it is, and can be recorded.
    """

    @abstractmethod
    def end(self) -> None:
        """Work after the layers; it only gives the device some, as they do."""

    @abstractmethod
    def lacked(self) -> bool:
        """Whether something was missing, which is there now; waits for the device."""


class Attempts(Protocol):
    """Reads tokens of an answer by attempts."""

    @abstractmethod
    def ready(self) -> bool:
        """Prepares for a token; whether there is room for it."""

    @abstractmethod
    def begin(self) -> Attempt:
        """An attempt at the layers that use it; it only gives the device work."""

    @abstractmethod
    def keep(self, attempts: Sequence[Any]) -> None:
        """Keeps the token, and what was counted.

        Args:
            attempts: the last ones at all layers; they lacked nothing.
        """


class Recalled(Chunked, Contract, abstract=True):
    """A memory for one question and its answer, over what a method kept."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """Tokens that it holds."""

    @abstractmethod
    def begin_answer(self) -> None:
        """Marks the end of the question: the tokens from now on are the answer's."""

    def attempting(self) -> Attempts | None:
        """What reads tokens of the answer by attempts; None: this cannot."""
        return None

    @abstractmethod
    def attended(self) -> float:
        """Tokens attended to by an answer token, mean over tokens and layers so far."""

    @abstractmethod
    def scores(self, tokens: int) -> Scores:
        """How much each document token was attended to; below 0: not at all."""


class Whole(Recalled, abstract=True):
    """A recalled memory of a method that evicts nothing.

    An answer token attends by `attend`, or the decode policy looks at what it would attend to.
    """

    @abstractmethod
    def narrow(self, window: int) -> bool:
        """Limits attention to `window` tokens from now on; whether that is fewer than before.

        Raises:
            UsageError: the limit is too small.
        """

    @abstractmethod
    def look(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Seen:
        """Keeps one token of a full-attention layer, and selects for it; see `attend`."""

    @abstractmethod
    def add(self, layer: Layer, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps one token of such a layer; returns its keys and values (G, 1, D) as kept."""

    @abstractmethod
    def kept_layer(self, index: int) -> Columns:
        """All that was kept of a layer without a sliding window."""


@dataclass(frozen=True)
class Held:
    """Bytes of memory that a method holds while it reads.

    Attributes:
        device: on the device where the model computes.
        host: pinned host memory, if the device is not the CPU.
    """

    device: int = 0
    host: int = 0
