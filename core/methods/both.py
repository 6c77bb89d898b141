"""REFORM's embeddings and ReAttention's keys and values from one reading.

The document is read as ReAttention reads it, and REFORM's heads are tapped on the way, so its token
embeddings reflect everything before them, not an evicted cache. A question gathers and recomputes
(REFORM, the default) or attends to everything kept (ReAttention).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from longctx.core.contracts import method as contract
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
from longctx.core.kv.embeddings import GROUP, Taps, embedding_bytes, search
from longctx.core.methods import reattention as by_reattention
from longctx.core.methods import reform as by_reform
from longctx.core.model.adapter import EarlyExit, Layer
from longctx.core.profile.described import Described


@dataclass(frozen=True)
class Options(contract.MethodOptions):
    """Options of both methods.

    Attributes:
        reform: of the embeddings and the gathering; those of its own cache, such as chunk and
            budget, are ignored.
        reattention: of the reading.
    """

    parts = ("reform", "reattention")

    reform: by_reform.Options
    reattention: by_reattention.Options

    def fitted(self, window: int) -> Self:
        """Fits the reading options; see `MethodOptions.fitted`."""
        return self.with_reading(self.reading.fitted(window))

    def require_heads(self, model: Described) -> None:
        """Those of REFORM; see `MethodOptions.require_heads`."""
        self.reform.require_heads(model)

    @property
    def reading(self) -> by_reattention.Options:
        """ReAttention's; see `MethodOptions.reading`."""
        return self.reattention

    def with_reading(self, part: by_reattention.Options) -> Self:
        """The same with other options of ReAttention; see `MethodOptions.with_reading`."""
        return replace(self, reattention=part)

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """Both methods' own; see `MethodOptions.measured`."""
        return cls(*(one.Options.measured(layers, window) for one in (by_reform, by_reattention)))


class Method(contract.Growing):
    """The memory of ReAttention, with REFORM's heads tapped.

    Args:
        options: `Options`.
        layers, place: see `Method` in the contract.
    """

    capabilities = by_reattention.Method.capabilities

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        super().__init__(options, layers, place)
        self._heads = options.reform.heads
        self._taps = Taps(self._heads, layers)
        self._kv = by_reattention.Method(options.reattention, layers, place)
        recomputing = Recomputing(options.reform, layers, self._kv, place)
        self.gather, self.edges = recomputing.gather, recomputing.edges
        self.ways = dict(zip(options.parts, (recomputing, self._kv), strict=True))

    @property
    def chunk(self) -> int:
        """Tokens read next, as ReAttention does."""
        return self._kv.chunk

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Taps the layer and attends as ReAttention does; see `Memory.attend`."""
        self._taps.tap(layer.index, q, k, v)
        return self._kv.attend(layer, q, k, v)

    def rows(self, skip: int = 0) -> Groups:
        """Embeddings, and keys and values, of the last chunk."""
        return {GROUP: self._taps.rows(skip), **self._kv.rows(skip)}

    def snapshot(self) -> Snapshot:
        """What ReAttention needs."""
        return self._kv.snapshot()

    def restore(self, snapshot: Snapshot, stored: Stored, reading: bool) -> None:
        """Restores what ReAttention needs."""
        self._kv.restore(snapshot, stored, reading)

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Bytes of ReAttention's snapshot."""
        return self._kv.snapshot_bytes(tokens, itemsize)

    def row_bytes(self) -> int:
        """Bytes of embeddings, keys and values."""
        return embedding_bytes(self._heads, self._layers) + self._kv.row_bytes()

    def held_bytes(self, tokens: int) -> Held:
        """What ReAttention holds."""
        return self._kv.held_bytes(tokens)

    def fill(self, tokens: int) -> None:
        """As if `tokens` tokens had been read; for measurements."""
        self._kv.fill(tokens)


class Recomputing(contract.Scoring):
    """Answers from this state as REFORM does: the best-scoring tokens are recomputed.

    Args:
        options: of REFORM.
        layers: the model's layers.
        kv: what a question attends to while it is embedded.
        place: where embeddings are compared.
    """

    def __init__(
        self,
        options: by_reform.Options,
        layers: tuple[Layer, ...],
        kv: contract.Recallable,
        place: Place,
    ):
        self._options, self._layers, self._kv, self._place = options, layers, kv, place
        self.gather, self.edges = options.gather, (options.first, options.last)
        self._depth = Taps(options.heads, layers).depth

    @property
    def depth(self) -> int:
        """Up to the highest layer with an embedding head; see `Way`."""
        return self._depth

    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Cosines with the question's embeddings; see `Scoring.score` in the contract."""
        return search(self.embed(read), scored, stored.rows(GROUP), self._options.pool)

    def embed(self, read: Callable[[Chunked], None]) -> tuple[Tensor, Tensor]:
        """The question's own embeddings; see `Scoring.embed` in the contract."""
        asked = Tapped(Taps(self._options.heads, self._layers), self._kv.recall())
        read(asked)
        vectors, scales = asked.taps.embeddings()
        return vectors.to(self._place.device), scales.to(self._place.device)


class Tapped(Memory):
    """A memory whose layers are tapped, up to the highest one needed."""

    def __init__(self, taps: Taps, memory: Recalled):
        self.taps, self._memory, self.chunk = taps, memory, memory.chunk

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Taps the layer and attends through the memory; see `Memory.attend`."""
        self.taps.tap(layer.index, q, k, v)
        if layer.index == self.taps.depth - 1:
            raise EarlyExit
        return self._memory.attend(layer, q, k, v)
