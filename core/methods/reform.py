"""REFORM: recurrent chunks over an evicted cache, embeddings of a few heads, gather and recompute.

Song et al., "Compress, Gather, and Recompute: REFORMing Long-Context Processing in Transformers",
NeurIPS 2025. This file reads and scores (3.1, 3.2 and the search of 3.3); the pipeline recomputes
the gathered tokens through the whole model.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from longctx.core.contracts import method as contract
from longctx.core.contracts.memory import HERE, Chunked, Groups, Place, Scores, Snapshot, Stored
from longctx.core.kv import evicted
from longctx.core.kv.embeddings import (
    GROUP,
    KINDS,
    Head,
    Taps,
    embedding_bytes,
    require_heads,
    search,
)
from longctx.core.kv.evicted import Cache
from longctx.core.model.adapter import EarlyExit, Layer
from longctx.core.profile.described import Described
from longctx.kernels.door import attention_mass, heaviest_tokens

NAME = "reform"  # in messages
# For measurements: the share of layers that run (22 of 32, as with the published heads), and the
# tokens of a chunk, of the cache, and gathered.
SHARE, MEASURED = 0.7, 8192
# Without a profile: the heads' depth, as shares of the layers (see `by_rule`), and sizes in tokens.
DEPTHS = (1 / 6, 1 / 4, 1 / 3, 5 / 12)
MOST_READ, MOST_GATHERED, MOST_PINNED = 8192, 16384, 256


@dataclass(frozen=True)
class Options(contract.MethodOptions):
    """Options of REFORM; the defaults are the paper's (4, "Parameters", and C.6).

    Attributes:
        heads: (layer, "q" | "k" | "v", head) of each embedding head, 0-based; the paper uses four.
        chunk: tokens of the input read at a time.
        budget: tokens that each layer's cache keeps after a chunk, pinned ones included.
        first: tokens at the start of the input that are never evicted.
        last: tokens at the end of the latest chunk that are always kept.
        queries: last queries of a chunk whose attention decides what is kept.
        accumulate: sum the attention of all chunks (as H2O does), not only the last one's.
        pool: neighbours on each side that share a token's score.
        gather: prefix and document tokens recomputed for a question.
    """

    heads: tuple[tuple[int, str, int], ...]
    chunk: int = 32768
    budget: int = 32768
    first: int = 256
    last: int = 256
    queries: int = 128
    accumulate: bool = False
    pool: int = 64
    gather: int = 16384

    def __post_init__(self) -> None:
        if not self.heads or any(kind not in KINDS for _, kind, _ in self.heads):
            raise ValueError(f"heads: expected [layer, q|k|v, head] entries, got {self.heads!r}")
        for name in ("chunk", "budget", "queries", "gather", "first", "last", "pool"):
            least = 0 if name in ("first", "last", "pool") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected {least} or more, got {getattr(self, name)}")
        if self.first + self.last > self.budget / 2:
            raise ValueError(
                f"first + last = {self.first + self.last} is more than half of budget {self.budget}"
            )

    @classmethod
    def measured(cls, layers: int, window: int) -> Self:
        """Four embedding heads; the highest layer decides how many layers run."""
        last = max(2, round(SHARE * layers)) - 1
        heads = ((last + 1) // 2, "q", 0), (last, "q", 0), (last, "k", 0), (last, "v", 0)
        return cls(heads=heads, chunk=MEASURED, budget=MEASURED, gather=MEASURED)

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """Heads and sizes for any model; docs/calibration.md has what the heads find.

        The heads are the first value head of the layers at 1/6, 1/4, 1/3 and 5/12 of the depth:
        14 of the 20 that the paper lists (C.6) are value heads, all below 7/10 of the depth, and
        every layer has a value head, whatever its number of key/value heads. Nothing is known of
        which head of a layer is best. Chunk and budget are a quarter of the window, and half of it
        is gathered, up to limits.
        """
        layers = model.shape.num_hidden_layers
        chunk = min(MOST_READ, max(1, window // 4))
        edge = min(MOST_PINNED, chunk // 8)
        return {
            "heads": tuple(dict.fromkeys((int(layers * at), "v", 0) for at in DEPTHS)),
            "chunk": chunk,
            "budget": chunk,
            "first": edge,
            "last": edge,
            "queries": min(cls.queries, chunk),
            "gather": min(MOST_GATHERED, max(1, window // 2)),
        }

    def require_heads(self, model: Described) -> None:
        """See `MethodOptions.require_heads`."""
        shape = model.shape
        counts = shape.num_attention_heads, shape.num_key_value_heads
        require_heads(self.heads, shape.num_hidden_layers, *counts)

    def shortened(self, chunk: int, budget: int) -> dict[str, int]:
        """Shorter ends, and at most a chunk's queries; see `MethodOptions.shortened`."""
        ends = {
            name: min(n, budget // 4) for name, n in (("first", self.first), ("last", self.last))
        }
        return {**ends, "queries": min(self.queries, chunk)}


class Method(contract.ReplayableQuestions, contract.Scoring):
    """The memory of REFORM.

    Differences from the paper, which leaves these open: attention mass is summed over the last
    `queries` queries of a chunk and over the query heads of a group; a question is read after the
    document, against the last evicted cache and the unevicted tail, and is never evicted itself;
    layers with a sliding window keep their window instead of a selection; q and k are tapped after
    the q/k norm of models that have one (the paper taps the projections).

    Args:
        options: `Options`.
        layers, place: see `Method` in the contract.
    """

    capabilities = contract.Capabilities(
        rereads=True,
        last_in_part=True,
        with_kv="both",
        by_source=True,
        renews=True,
    )

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        super().__init__(options, layers, place)
        self.gather, self.edges = options.gather, (options.first, options.last)
        self._taps = Taps(options.heads, layers)
        self._layers = layers[: self._taps.depth]
        self._caches: list[Cache | None] = [None] * (self.depth - 1)
        self._seen: Any = 0  # tokens of the input read so far; a tensor where that is recorded
        self._evicts, self._shares = True, False

    # --- reading ---

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends the chunk to [kept cache | chunk], then evicts; see `Memory.attend`."""
        self._taps.tap(layer.index, q, k, v)
        if layer.index == self.depth - 1:
            self._seen = self._seen + q.shape[1]
            raise EarlyExit
        cache = self._caches[layer.index] or Cache.empty(layer, k)
        cache = cache.extended(k, v, self._seen)
        q, k, attended, lse = cache.attend(layer, q)
        # Evicting now rather than after all layers keeps only one layer's chunk in memory.
        full = self._evicts and self.chunk == q.shape[1]
        cache = self._evicted(cache, layer, q, k, lse) if full else cache
        self._caches[layer.index] = cache.joined() if self._evicts else cache
        return attended

    @property
    def seen(self) -> int:
        """See `Replayable.seen`."""
        return self._seen

    def states(self) -> list[Tensor]:
        """See `Replayable.states`."""
        return evicted.tensors_of(self._caches)

    def replaying(self, states: Sequence[Tensor], seen: Tensor | int) -> Self:
        """See `Replayable.replaying`."""
        made = copy.copy(self)
        made._caches, made._seen = evicted.of_tensors(states), seen
        made._taps = Taps(self.options.heads, self._layers)
        return made

    def taken(self) -> dict[Head, Tensor]:
        """See `Replayable.taken`."""
        return self._taps.taken()

    def take(self, taken: Mapping[Head, Tensor], tokens: int) -> None:
        """See `ReplayableQuestions.take`."""
        self._taps.take({head: state[:tokens] for head, state in taken.items()})

    def rows_of(self, taken: Mapping[Head, Tensor], skip: int = 0) -> Groups:
        """See `Replayable.rows_of`."""
        return {GROUP: self._taps.rows(skip, taken)}

    def hold(self, states: Sequence[Tensor], seen: int) -> None:
        """See `Replayable.hold`."""
        self._caches, self._seen, self._shares = evicted.of_tensors(states), seen, True

    def rows(self, skip: int = 0) -> Groups:
        """int8 `vectors` (T, heads, D) and float16 `scales` (T, heads) of the last chunk (3.2)."""
        return {GROUP: self._taps.rows(skip)}

    def _evicted(
        self, cache: Cache, layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None
    ) -> Cache:
        """The cache cut down to its budget (3.1), or to the layer's sliding window."""
        if layer.window is not None:
            return cache.latest(layer.window)
        o = self.options
        if o.accumulate or o.budget < cache.length:
            last, lse = q[:, -o.queries :], None if lse is None else lse[:, -o.queries :]
            more = {"softcap": layer.softcap, "sinks": layer.sinks}
            mass = attention_mass(last, k, layer.scale, lse, **more)
            cache.mass = cache.mass + mass if o.accumulate else mass
        if o.budget >= cache.length:
            return cache
        return cache.kept(heaviest_tokens(cache.mass, o.budget, o.first, o.last))

    # --- saving ---

    def snapshot(self) -> Snapshot:
        """The cache of each layer below the last tapped one, with tail, and the tokens read."""
        found = evicted.saved(self._caches, self._seen, self.options.accumulate)
        return {name: x.clone() for name, x in found.items()} if self._shares else found

    def restore(
        self, snapshot: Snapshot, stored: Stored | None = None, reading: bool = True
    ) -> None:
        """Restores what `snapshot` gave; nothing else of the document is needed."""
        given = self._layers[:-1], self._place, self.options.accumulate, NAME
        self._caches, self._seen = evicted.restored(snapshot, *given)

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Bytes of keys, values and positions of the evicted caches and an unfinished chunk."""
        o = self.options
        given = o.budget, o.chunk, tokens, itemsize, o.accumulate
        return evicted.saved_bytes(self._layers[:-1], *given)

    def row_bytes(self) -> int:
        """Bytes of a token's embeddings."""
        return embedding_bytes(self.options.heads, self._layers)

    # --- a question ---

    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Best cosine with any of the user's tokens, then the maximum over the neighbours (3.3)."""
        return search(self.embed(read), scored, stored.rows(GROUP), self.options.pool)

    def embed(self, read: Callable[[Chunked], None]) -> tuple[Tensor, Tensor]:
        """The question's own embeddings; see `Scoring.embed` in the contract."""
        asked = copy.copy(self)
        asked._caches, asked._evicts = list(self._caches), False
        asked._taps = Taps(self.options.heads, self._layers)
        read(asked)
        vectors, scales = asked._taps.embeddings()
        return vectors.to(self._place.device), scales.to(self._place.device)
