"""REFORM: recurrent chunks over an evicted cache, embeddings of a few heads, gather and recompute.

Song et al., "Compress, Gather, and Recompute: REFORMing Long-Context Processing in Transformers",
NeurIPS 2025. This file reads and scores (3.1 and 3.2 of the paper, and the search of 3.3); what is
gathered is recomputed through the whole model by the pipeline.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.errors import StateMismatch, UsageError
from longctx.core.memory import Memory, Rows, Scores, Snapshot
from longctx.core.model import EarlyExit, Layer
from longctx.core.store.shards import AGAIN
from longctx.kernels.door import attention_mass, similarity_max, sliding_max
from longctx.kernels.similarity_max_ref import quantize

KINDS = ("q", "k", "v")


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
        return cls(nothing, nothing, _whole(like, G, 0), like.new_zeros(G, 0))

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
    """

    group = "embeddings"

    def __init__(self, options: Options, layers: tuple[Layer, ...]):
        _require_heads(options, layers)
        self.options = options
        self.chunk, self.gather = options.chunk, options.gather
        self.edges = (options.first, options.last)
        self.depth = max(layer for layer, _, _ in options.heads) + 1
        self._layers = layers[: self.depth]
        self._caches: list[Cache | None] = [None] * (self.depth - 1)
        self._taps: dict[tuple[int, str, int], Tensor] = {}
        self._seen = 0  # tokens of the input read so far
        self._evicts = True

    # --- reading ---

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends the chunk to [kept cache | chunk], then evicts; see `Memory.attend`."""
        self._tap(layer.index, {"q": q, "k": k, "v": v})
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

    def rows(self) -> Rows:
        """int8 `vectors` (T, heads, D) and float16 `scales` (T, heads) of the last chunk (3.2)."""
        vectors, scales = self._embeddings()
        return {"vectors": vectors, "scales": scales}

    def _tap(self, index: int, states: dict[str, Tensor]) -> None:
        for layer, kind, head in self.options.heads:
            if layer == index:
                self._taps[layer, kind, head] = states[kind][head]  # (T, D)

    def _embeddings(self) -> tuple[Tensor, Tensor]:
        stacked = torch.stack([self._taps.pop(head) for head in self.options.heads], dim=1)
        stacked = stacked if stacked.dtype == torch.float64 else stacked.float()
        return quantize(torch.nn.functional.normalize(stacked, dim=-1))  # (T, heads, D)

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

    def restore(self, snapshot: Snapshot) -> None:
        """Takes up what `snapshot` gave; tensors must be on the model's device and in its dtype."""
        self._require_fit(snapshot)
        self._seen = int(snapshot["seen"])
        for index in range(self.depth - 1 if self._seen else 0):
            keys = snapshot[f"keys.{index}"]
            positions = snapshot[f"positions.{index}"]
            mass = snapshot.get(f"mass.{index}", torch.zeros_like(positions, dtype=keys.dtype))
            values = snapshot[f"values.{index}"]
            self._caches[index] = Cache(keys, values, positions, mass)

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
                expected[f"mass.{index}"] = (heads, keys.dtype)
            _require(keys.ndim == 3 and keys.is_floating_point(), "tensors in the snapshot")
        found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in snapshot.items()}
        _require(found == expected, "tensors in the snapshot")

    def snapshot_bytes(self, tokens: int, itemsize: int) -> int:
        """Keys, values and positions of the evicted caches and of a chunk that is not whole."""
        o, total = self.options, 0
        for layer in self._layers[:-1]:
            kept = o.budget if layer.window is None else layer.window
            held = layer.kv_heads * min(tokens, kept + o.chunk)
            total += held * ((2 * layer.head_dim + o.accumulate) * itemsize + 8)
        return total

    @staticmethod
    def bytes_per_token(options: Options, head_dim: int) -> int:
        """int8 vectors and one float16 scale for each head."""
        return len(options.heads) * (head_dim + 2)

    # --- a question ---

    def score(self, read: Callable[[Memory], None], scored: Tensor, rows: Iterable[Rows]) -> Scores:
        """Best cosine with any of the user's tokens, then the maximum over the neighbours (3.3)."""
        asked = copy.copy(self)
        asked._caches, asked._taps, asked._evicts = list(self._caches), {}, False
        read(asked)
        query, scales = asked._embeddings()
        query, scales = query[scored.to(query.device)], scales[scored.to(scales.device)]
        parts = []
        for block in rows:
            vectors, factors = self._fitting(block)
            parts.append(
                similarity_max(vectors.to(query.device), factors.to(query.device), query, scales)
            )
        raw = torch.cat(parts) if parts else torch.zeros(0, device=query.device)
        return Scores(raw, sliding_max(raw, self.options.pool))

    def _fitting(self, block: Rows) -> tuple[Tensor, Tensor]:
        """Vectors and scales of stored rows; StateMismatch where they are not as `rows` gives."""
        heads, D = len(self.options.heads), self._layers[-1].head_dim
        vectors, scales = (block.get(name, torch.zeros(0)) for name in ("vectors", "scales"))
        shape = (len(vectors), heads, D)
        fits = (vectors.dtype, vectors.shape) == (torch.int8, shape)
        fits = fits and (scales.dtype, scales.shape) == (torch.float16, shape[:2])
        _require(fits and bool(scales.isfinite().all()), "vectors and scales")
        return vectors, scales


def _require(fits: bool, part: str) -> None:
    if not fits:
        raise StateMismatch(
            f"the {part} of the document cannot be those of the method 'reform'",
            "names, shapes or types are not what it writes with these options and this model",
            AGAIN,
        )


def _require_heads(options: Options, layers: tuple[Layer, ...]) -> None:
    for layer, kind, head in options.heads:
        if not 0 <= layer < len(layers):
            raise UsageError(
                f"no layer {layer} for embedding head [{layer}, {kind}, {head}]",
                f"the model has layers 0 to {len(layers) - 1}",
                "Use the profile of this model.",
            )
        count = layers[layer].query_heads if kind == "q" else layers[layer].kv_heads
        if not 0 <= head < count:
            raise UsageError(
                f"no {kind} head {head} in layer {layer}",
                f"there are {count}",
                "Use the profile of this model.",
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
