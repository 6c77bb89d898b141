"""Dense decoding: every new token attends to everything before it.

Also the memory in which gathered tokens are recomputed. Keys are kept rotated, in buffers of fixed
size.
"""

from torch import Tensor

from longctx.core.model import Layer


class Dense:
    """Keys and values of one answer, at consecutive positions from 0.

    Args:
        capacity: tokens it can hold: prompt and answer.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._kept: dict[int, _LayerCache] = {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention to all tokens so far; see `Memory.attend`."""
        if layer.index not in self._kept:
            self._kept[layer.index] = _LayerCache(k, v, self.capacity)
        cache = self._kept[layer.index]
        T, S = q.shape[1], cache.append(layer, k, v)
        q = layer.rotate(q, slice(S - T, S), S)
        return layer.attention(q, cache.rotated[:, :S], cache.values[:, :S])

    def end_chunk(self) -> None:
        """Nothing to close: everything is kept."""


class _LayerCache:
    def __init__(self, k: Tensor, v: Tensor, capacity: int):
        G, _, D = k.shape
        self.keys = k.new_empty(G, capacity, D)  # position-free
        self.rotated = k.new_empty(G, capacity, D)
        self.values = v.new_empty(G, capacity, v.shape[-1])
        self.length = 0

    def append(self, layer: Layer, k: Tensor, v: Tensor) -> int:
        """Adds T tokens; returns how many there are now."""
        start, S = self.length, self.length + k.shape[1]
        self.keys[:, start:S] = k
        self.values[:, start:S] = v
        # Where frequencies depend on the length, growing may move the older keys to another basis.
        stale = start == 0 or not layer.rope.same_basis(S, start)
        since = 0 if stale else start
        self.rotated[:, since:S] = layer.rotate(self.keys[:, since:S], slice(since, S), S)
        self.length = S
        return S
