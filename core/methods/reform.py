"""REFORM: recurrent chunks over an evicted cache, embeddings of a few heads, gather and recompute.

Song et al., "Compress, Gather, and Recompute: REFORMing Long-Context Processing in Transformers",
NeurIPS 2025. This file reads and scores (3.1 and 3.2 of the paper, and the search of 3.3); what is
gathered is recomputed through the whole model by the pipeline.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.embeddings import GROUP, KINDS, Taps, embedding_bytes, search
from longctx.core.errors import StateMismatch
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
from longctx.core.model import EarlyExit, Layer
from longctx.core.store.shards import AGAIN
from longctx.kernels.door import attention_mass

WITH_KV = "both"  # the method that keeps keys and values too


@dataclass(frozen=True)
class Options:
    """Options of REFORM; the defaults are the paper's (4, "Parameters", and C.6).

    Attributes:
        heads: (layer, "q" | "k" | "v", head) of each embedding head, 0-based; the paper takes four.
        chunk: tokens of the input read at a time.
        budget: tokens that each layer's cache keeps after a chunk, pinned ones included.
        first: tokens at the start of the input that are never evicted.
        last: tokens at the end of the chunk just read that are kept.
        queries: last queries of a chunk whose attention decides what is kept.
        accumulate: add up the attention of all chunks (H2O's running sum), not the last one's.
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


@dataclass
class Cache:
    """One layer's kept keys and values; each key/value head keeps tokens of its own.

    Attributes:
        keys, values: (G, C, D), position-free, in input order.
        positions: (G, C) int64, where each kept token stands in the input.
        mass: (G, C), attention received in earlier chunks; only with `accumulate`.
    """

    keys: Tensor
    values: Tensor
    positions: Tensor
    mass: Tensor

    @classmethod
    def empty(cls, layer: Layer, like: Tensor) -> "Cache":
        """A cache of no tokens, on the device and in the dtype of `like`."""
        G, D = layer.kv_heads, layer.head_dim
        nothing = like.new_zeros(G, 0, D)
        wide = torch.promote_types(like.dtype, torch.float32)
        return cls(nothing, nothing, _whole(like, G, 0), like.new_zeros(G, 0, dtype=wide))

    def extended(self, keys: Tensor, values: Tensor, start: int) -> "Cache":
        """With T more tokens, (G, T, D) each, at input positions from `start`."""
        G, T, _ = keys.shape
        new = _whole(keys, G, T) + start
        return Cache(
            torch.cat([self.keys, keys], dim=1),
            torch.cat([self.values, values], dim=1),
            torch.cat([self.positions, new], dim=1),
            torch.cat([self.mass, self.mass.new_zeros(G, T)], dim=1),
        )

    def kept(self, index: Tensor) -> "Cache":
        """Only the tokens at `index` (G, n), ascending in each head."""
        wide = index[..., None].expand(-1, -1, self.keys.shape[-1])  # (G, n, D)
        return Cache(
            self.keys.gather(1, wide),
            self.values.gather(1, wide),
            self.positions.gather(1, index),
            self.mass.gather(1, index),
        )


def _whole(like: Tensor, G: int, n: int) -> Tensor:
    return torch.arange(n, device=like.device).expand(G, n)


class Method(Memory):
    """The memory of REFORM.

    Differences from the paper, which leaves these open: attention mass is summed over the last
    `queries` queries of a chunk and over the query heads of a group; a question is read after the
    document, against the last evicted cache and the unevicted tail, and is never evicted itself;
    layers with a sliding window keep their window instead of a selection; q and k are tapped after
    the q/k norm of models that have one (the paper taps the projections).

    Args:
        options: `Options`.
        layers: the model's layers.
        place: where to keep the caches.
    """

    recalls, ways = False, {}

    def __init__(self, options: Options, layers: tuple[Layer, ...], place: Place = HERE):
        self.options = options
        self.chunk, self.gather = options.chunk, options.gather
        self.edges = (options.first, options.last)
        self._taps = Taps(options.heads, layers)
        self.depth = self._taps.depth
        self._layers, self._place = layers[: self.depth], place
        self._caches: list[Cache | None] = [None] * (self.depth - 1)
        self._seen = 0  # tokens of the input read so far
        self._evicts = True

    # --- reading ---

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends the chunk to [kept cache | chunk], then evicts; see `Memory.attend`."""
        self._taps.tap(layer.index, q, k, v)
        if layer.index == self.depth - 1:
            self._seen += q.shape[1]
            raise EarlyExit
        cache = self._caches[layer.index] or Cache.empty(layer, k)
        cache = cache.extended(k, v, self._seen)
        T, S = q.shape[1], cache.keys.shape[1]
        q = layer.rotate(q, slice(S - T, S), S)
        k = layer.rotate(cache.keys, slice(0, S), S)
        attended, lse = layer.attention_lse(q, k, cache.values)
        # Evicting now, and not after all layers, keeps one layer's chunk in memory, not all.
        full = self._evicts and self.chunk == T
        self._caches[layer.index] = self._evicted(cache, layer, q, k, lse) if full else cache
        return attended

    def end_chunk(self) -> None:
        """Nothing is left to do: each layer evicts as soon as it has attended."""

    def rows(self, skip: int = 0) -> Groups:
        """int8 `vectors` (T, heads, D) and float16 `scales` (T, heads) of the last chunk (3.2)."""
        return {GROUP: self._taps.rows(skip)}

    def _evicted(
        self, cache: Cache, layer: Layer, q: Tensor, k: Tensor, lse: Tensor | None
    ) -> Cache:
        """The cache cut down to its budget (3.1), or to the layer's sliding window."""
        G, S = cache.positions.shape
        if layer.window is not None:
            index = torch.arange(max(0, S - layer.window), S, device=k.device)
            return cache.kept(index.expand(G, -1))
        o = self.options
        if o.accumulate or o.budget < S:
            last, lse = q[:, -o.queries :], None if lse is None else lse[:, -o.queries :]
            more = {"softcap": layer.softcap, "sinks": layer.sinks}
            mass = attention_mass(last, k, layer.scale, lse, **more)
            cache.mass = cache.mass + mass if o.accumulate else mass
        if o.budget >= S:
            return cache
        return cache.kept(_heaviest(cache.mass, o.budget, o.first, o.last))

    # --- saving ---

    def snapshot(self) -> Snapshot:
        """The cache of every layer below the last tapped one, tail included, and the count read."""
        tensors = {"seen": torch.tensor(self._seen)}
        for index, cache in enumerate(self._caches):
            if cache is not None:
                tensors[f"keys.{index}"] = cache.keys
                tensors[f"values.{index}"] = cache.values
                tensors[f"positions.{index}"] = cache.positions.to(torch.int64)
                if self.options.accumulate:
                    tensors[f"mass.{index}"] = cache.mass
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def restore(
        self, snapshot: Snapshot, stored: Stored | None = None, reading: bool = True
    ) -> None:
        """Takes up what `snapshot` gave; nothing else of the document is needed."""
        self._require_fit(snapshot)
        self._seen = int(snapshot["seen"])
        for index in range(self.depth - 1 if self._seen else 0):
            keys, values = (self._place.put(snapshot[f"{n}.{index}"]) for n in ("keys", "values"))
            positions = snapshot[f"positions.{index}"].to(keys.device)
            wide = torch.promote_types(keys.dtype, torch.float32)
            mass = snapshot.get(f"mass.{index}", torch.zeros(positions.shape))
            self._caches[index] = Cache(keys, values, positions, mass.to(keys.device, wide))

    def _require_fit(self, snapshot: Snapshot) -> None:
        """StateMismatch unless names, shapes and types are those that `snapshot` gives."""
        expected = {"seen": ((), torch.int64)}
        has_read = "seen" in snapshot and snapshot["seen"].any()
        for index, layer in enumerate(self._layers[:-1] if has_read else ()):
            keys = snapshot.get(f"keys.{index}", torch.zeros(0))
            heads = (layer.kv_heads, *keys.shape[1:2])  # (G, C)
            expected[f"positions.{index}"] = (heads, torch.int64)
            expected[f"keys.{index}"] = ((*heads, layer.head_dim), keys.dtype)
            expected[f"values.{index}"] = ((*heads, layer.head_dim), keys.dtype)
            if self.options.accumulate:
                wide = torch.promote_types(keys.dtype, torch.float32)
                expected[f"mass.{index}"] = (heads, wide)
            _require(keys.ndim == 3 and keys.is_floating_point(), "tensors in the snapshot")
        found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in snapshot.items()}
        _require(found == expected, "tensors in the snapshot")

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Keys, values and positions of the evicted caches and of a chunk that is not whole."""
        o, total = self.options, 0
        for layer in self._layers[:-1]:
            kept = o.budget if layer.window is None else layer.window
            held = layer.kv_heads * min(tokens, kept + o.chunk)
            total += held * (2 * layer.head_dim * itemsize + 8 + o.accumulate * max(4, itemsize))
        return total

    def row_bytes(self) -> int:
        """Bytes of a token's embeddings."""
        return embedding_bytes(self.options.heads, self._layers)

    def held_bytes(self, tokens: int) -> Held:
        """Nothing that a chunk or two would not show: the caches are of a fixed size."""
        return Held()

    # --- a question ---

    def score(self, read: Callable[[Chunked], None], scored: Tensor, stored: Stored) -> Scores:
        """Best cosine with any of the user's tokens, then the maximum over the neighbours (3.3)."""
        asked = copy.copy(self)
        asked._caches, asked._evicts = list(self._caches), False
        asked._taps = Taps(self.options.heads, self._layers)
        read(asked)
        return search(asked._taps.embeddings(), scored, stored.rows(GROUP), self.options.pool)

    def recall(self) -> Recalled:
        """Is never reached: gathered tokens are recomputed."""
        raise AssertionError("REFORM recomputes what it gathers")


def _require(fits: bool, part: str) -> None:
    if not fits:
        raise StateMismatch(
            f"the {part} of the document cannot be those of the method 'reform'",
            "names, shapes or types are not what it writes with these options and this model",
            AGAIN,
        )


def _heaviest(mass: Tensor, budget: int, first: int, last: int) -> Tensor:
    """Which of S tokens each head keeps: the first, the last, and the heaviest of the rest.

    Args:
        mass: (G, S), S > budget.
        budget, first, last: tokens.

    Returns:
        (G, budget) ascending; ties go to the earlier token.
    """
    G, S = mass.shape
    middle = mass[:, first : S - last]
    # A stable descending sort leaves equal entries in input order.
    order = middle.argsort(dim=1, descending=True, stable=True)
    chosen = order[:, : budget - first - last].sort(dim=1).values + first
    head = torch.arange(first, device=mass.device).expand(G, -1)
    tail = torch.arange(S - last, S, device=mass.device).expand(G, -1)
    return torch.cat([head, chosen, tail], dim=1)
