"""Ring buffers of the latest tokens of layers with a sliding window.

The order of rotated keys does not matter to attention, so a new token takes the place of the one
that has left the window.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from longctx.core.kv.prompt import LayerCache, Rotation
from longctx.core.model.adapter import Layer
from longctx.kernels.door import Store, cached_attention


class Rings:
    """The latest tokens of all layers with a sliding window.

    Args:
        caches: of a prompt in these layers, settled; their tensors are not kept.
    """

    def __init__(self, caches: Iterable[LayerCache]):
        self._rings = {cache.layer.index: Ring(cache) for cache in caches}
        self._where: dict[int, tuple[Tensor, Tensor]] = {}  # size -> slot, tokens incl. this one

    def begin(self, position: Tensor) -> None:
        """Finds the slot of the token at this position (1,) for every ring size."""
        for size in {ring.size for ring in self._rings.values()}:
            self._where[size] = position % size, (position + 1).clamp(max=size)

    def reassign(self, position: Tensor) -> None:
        """From the token at this position on, positions are those within the windows."""
        for ring in self._rings.values():
            ring.reassign(position)

    def turn(self, length: int) -> None:
        """From now on the basis is that of a window of `length` places."""
        for ring in self._rings.values():
            ring.turn(length)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
        """Attends one token to its layer's window; see `Memory.attend`."""
        ring = self._rings[layer.index]
        return ring.attend(q, k, v, position, *self._where[ring.size])


class Ring:
    """One layer's latest tokens: the one at position p is entry p % size.

    Args:
        cache: of the prompt.

    Attributes:
        size: tokens.
        keys, values: (G, size, D), keys rotated.
    """

    def __init__(self, cache: LayerCache):
        self._layer, self._rotation = cache.layer, cache.rotation
        self.size = cache.layer.within(cache.rotation.length)
        self.keys, self.values = (self._latest(x, cache) for x in (cache.keys, cache.values))
        # Position-free keys: once positions are re-assigned, or if keys are rotated again.
        self._plain = None if cache.plain is None else self._latest(cache.plain, cache)
        self._reassigned = False

    def _latest(self, x: Tensor, cache: LayerCache) -> Tensor:
        """The ring (G, size, D) of x (G, C, D), whose first entries are the prompt's."""
        P, n = cache.length, min(cache.length, self.size)
        latest = x.new_zeros(len(x), self.size, x.shape[-1])
        latest[:, torch.arange(P - n, P, device=x.device) % self.size] = x[:, P - n : P]
        return latest

    def turn(self, length: int) -> None:
        """From now on the basis is that of a window of `length` places."""
        self._rotation = Rotation(self._layer, length, self.keys)

    def reassign(self, position: Tensor) -> None:
        """Undoes the rotation of all tokens; the next one has this position."""
        self._reassigned = True
        if self._plain is not None:
            return
        entry = torch.arange(self.size, device=position.device)
        held = position - 1 - (position - 1 - entry) % self.size
        self._plain = self._layer.rope.unrotate(self.keys, held, self._rotation.length)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, position: Tensor, slot: Tensor, count: Tensor
    ) -> Tensor:
        """Attends one token at a position and a slot to `count` entries, itself one of them."""
        x, stores = self._layer, [Store(self.keys, self.values, slot)]
        place = count - 1 if self._reassigned else position  # re-assigned: the ring is full
        q = self._rotation.put(q, k, v, place, stores)
        if self._plain is not None:
            self._plain.index_copy_(1, slot, k)
            behind = (slot - torch.arange(self.size, device=slot.device)) % self.size
            places = (place - behind).clamp(min=0)  # below 0: not in use yet
            self.keys.copy_(x.rotate(self._plain, places, self._rotation.length))
        return cached_attention(q, self.keys, self.values, count, x.scale, None, x.softcap, x.sinks)
