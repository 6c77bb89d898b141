"""REFORM's memory in numpy: what a short document or a prefix leaves, and a question against it.

As `core/methods/reform.py`, in float32: each layer's evicted cache, and the states of the embedding
heads as int8. Of options it takes those that `covered.py` lets through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longctx.core.light.llama import Floats, Llama, attended, attention, floats

LEAST = np.float32(2.0**-14)  # the smallest normal float16
SMALLEST = 1e-12  # a norm that a vector is divided by is at least this


class Rows(NamedTuple):
    """Embeddings of tokens: int8 vectors (T, heads, D) and float16 scales (T, heads)."""

    vectors: NDArray[np.int8]
    scales: NDArray[np.float16]

    def chosen(self, which: "slice | NDArray[np.bool_]") -> "Rows":
        """Some of them."""
        return Rows(self.vectors[which], self.scales[which])


@dataclass(frozen=True)
class Options:
    """Those of REFORM that decide what is read and kept; see `core/methods/reform.py`."""

    heads: tuple[tuple[int, str, int], ...]
    chunk: int
    budget: int
    first: int
    last: int
    queries: int

    @property
    def depth(self) -> int:
        """Layers that run, the last one up to its projections."""
        return 1 + max(layer for layer, _, _ in self.heads)


@dataclass(frozen=True)
class Cache:
    """A layer's kept keys and values (G, C, D), position-free, in input order."""

    keys: Floats
    values: Floats

    def extended(self, keys: Floats, values: Floats) -> "Cache":
        """The cache with more tokens."""
        joined = np.concatenate([self.keys, keys], 1), np.concatenate([self.values, values], 1)
        return Cache(*joined)


class Reading:
    """What a model has read, and reads next.

    Args:
        model: with the depth of the options.
        options: of the document.
        caches: of each layer below the last; none: nothing was read.
    """

    def __init__(self, model: Llama, options: Options, caches: Mapping[int, Cache] | None = None):
        self._model, self._options = model, options
        self._caches = dict(caches or {})

    def document(self, prefix: NDArray[np.int64], ids: NDArray[np.int64]) -> Rows:
        """Reads prefix (P,) and document (N,), evicting after whole chunks; rows of the latter."""
        tokens, chunk = np.concatenate([prefix, ids]), self._options.chunk
        parts = [
            self._read(tokens[start : start + chunk], evicts=len(tokens) - start >= chunk)
            for start in range(0, len(tokens), chunk)
        ]
        vectors = np.concatenate([part.vectors for part in parts])
        joined = Rows(vectors, np.concatenate([part.scales for part in parts]))
        return joined.chosen(slice(len(prefix), None))

    def question(self, ids: NDArray[np.int64]) -> Rows:
        """The embeddings of a question (T,); it is no longer than a chunk, and changes nothing."""
        kept = dict(self._caches)
        try:
            return self._read(ids, evicts=False)
        finally:
            self._caches = kept

    def _read(self, ids: NDArray[np.int64], evicts: bool) -> Rows:
        tapped: dict[tuple[int, str, int], Floats] = {}

        def attend(index: int, q: Floats, k: Floats, v: Floats) -> Floats:
            states = {"q": q, "k": k, "v": v}
            for layer, kind, head in self._options.heads:
                if layer == index:
                    tapped[layer, kind, head] = states[kind][head]
            return q if index == self._model.depth - 1 else self._attend(index, q, k, v, evicts)

        self._model.read(ids, attend)
        return quantized(np.stack([tapped[head] for head in self._options.heads], axis=1))

    def _attend(self, index: int, q: Floats, k: Floats, v: Floats, evicts: bool) -> Floats:
        known = self._caches.get(index)
        cache = known.extended(k, v) if known else Cache(k, v)
        S = cache.keys.shape[1]
        q = self._model.rotate(q, S - q.shape[1])
        keys = self._model.rotate(cache.keys, 0)
        self._caches[index] = self._evicted(cache, q, keys) if evicts else cache
        return attention(q, keys, cache.values, self._model.scale)

    def _evicted(self, cache: Cache, q: Floats, keys: Floats) -> Cache:
        """The cache cut down to its budget, by the attention that rotated keys receive."""
        o, S = self._options, keys.shape[1]
        if o.budget >= S:
            return cache
        mass = attended(q[:, -o.queries :], keys, self._model.scale).sum((1, 2))  # (G, S)
        middle = mass[:, o.first : S - o.last]
        order = np.argsort(-middle, axis=1, kind="stable")  # ties go to the earlier token
        chosen = np.sort(order[:, : o.budget - o.first - o.last], axis=1) + o.first
        edges = [
            np.broadcast_to(np.arange(*ends), (len(mass), ends[1] - ends[0]))
            for ends in ((0, o.first), (S - o.last, S))
        ]
        index = np.concatenate([edges[0], chosen, edges[1]], axis=1)[..., None]
        taken = (np.take_along_axis(part, index, 1) for part in (cache.keys, cache.values))
        return Cache(*taken)


def floats_of(dtype: str, array: np.ndarray) -> Floats | None:
    """Stored keys or values in float32; None if they are of a type that is not known here."""
    if dtype not in ("bfloat16", "float16", "float32"):
        return None
    return floats(array.view(np.uint16) if dtype == "bfloat16" else array)


def quantized(states: Floats) -> Rows:
    """Normalised states (T, heads, D) as rows; see `kernels/quantize.py`."""
    norms = np.sqrt(np.square(states).sum(-1, keepdims=True))
    unit = states / np.maximum(norms, np.float32(SMALLEST))
    scales = (np.abs(unit).max(-1) / np.float32(127)).astype(np.float16)
    divisor = np.maximum(scales.astype(np.float32), LEAST)[..., None]
    return Rows(np.clip(np.rint(unit / divisor), -127, 127).astype(np.int8), scales)
