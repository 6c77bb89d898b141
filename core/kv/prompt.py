"""Keys and values of a prompt and its answer, rotated, in buffers of fixed size.

Independent of the policy (`core/decode/policies/`), which decides what an answer attends to.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.core.contracts.memory import Memory
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE, Pages, Store, append_rotated, cached_attention


class Prompt(Memory):
    """A memory in which every token attends to all before it, at consecutive positions from 0.

    Args:
        capacity: tokens that it can hold.
        observed: how many of the latest queries are kept.

    Attributes:
        caches: of the layers, by their index.
    """

    on_one_device = True

    def __init__(self, capacity: int, observed: int = 0):
        self.capacity = -(-capacity // PAGE) * PAGE
        self._observed = observed
        self.caches: dict[int, LayerCache] = {}

    @property
    def length(self) -> int:
        """Tokens so far."""
        return next(iter(self.caches.values())).length

    @property
    def windows(self) -> dict[int, int | None]:
        """Windows of the layers by their index, in tokens; None: full attention."""
        return {index: cache.layer.window for index, cache in self.caches.items()}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention to all tokens so far; see `Memory.attend`."""
        if layer.index not in self.caches:
            self.caches[layer.index] = LayerCache(layer, k, v, self.capacity)
        return self.caches[layer.index].read(q, k, v, self._observed)

    def fill(self, layers: Sequence[Layer], tokens: int, device: str, dtype: torch.dtype) -> None:
        """As if `tokens` tokens had been read, with random contents; to measure speed.

        Args:
            layers: the model's.
            tokens: at most the capacity.
            device, dtype: of keys and values.
        """
        for layer in layers:
            none = torch.empty(layer.kv_heads, 0, layer.head_dim, device=device, dtype=dtype)
            self.caches[layer.index] = LayerCache(layer, none, none, self.capacity)
            self.caches[layer.index].fill(tokens, self._observed)


class LayerCache:
    """One layer's keys and values.

    Args:
        layer: the layer.
        k, v: the first ones (G, T, D), for their shapes, dtype and device.
        capacity: tokens that it can hold, a multiple of `PAGE`.

    Attributes:
        keys, values: (G, capacity, D), keys rotated; fewer after `keep`.
        rotation: of the tokens that `put` adds after the prompt.
        length: tokens of the prompt.
        queries: (H, n, D) position-free, of the prompt's last tokens.
    """

    def __init__(self, layer: Layer, k: Tensor, v: Tensor, capacity: int):
        G, _, D = k.shape
        self.layer, self.length, self.capacity = layer, 0, capacity
        self.keys = k.new_empty(G, capacity, D)
        self.values = v.new_empty(G, capacity, v.shape[-1])
        # If frequencies depend on the length, growing may move older keys to another basis.
        self._plain = k.new_empty(G, capacity, D) if layer.rope.length_dependent else None
        self.rotation = Rotation(layer, capacity, k)
        self.queries = k.new_empty(layer.query_heads, 0, D)
        # After `keep`: the positions (G, n) of the entries left, and the tokens there were before.
        self._places: Tensor | None = None
        self._before = 0

    @property
    def plain(self) -> Tensor | None:
        """Position-free keys (G, length, D) if a new token may change older keys; else None."""
        return None if self._plain is None else self._plain[:, : self.length]

    @property
    def grows(self) -> bool:
        """Whether a new token may change older keys; then the host must know its place."""
        return self._plain is not None

    def read(self, q: Tensor, k: Tensor, v: Tensor, observed: int = 0) -> Tensor:
        """Adds T tokens and attends them causally: position-free (H, T, D) and (G, T, D)."""
        if observed:
            self.queries = torch.cat([self.queries, q[:, -observed:]], dim=1)[:, -observed:]
        q = self.add(q, k, v)
        return self.layer.attention(q, self.keys[:, : self.length], self.values[:, : self.length])

    def add(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Adds T tokens as `read` does, but only rotates their queries: (H, T, D)."""
        start, S = self.length, self.length + k.shape[1]
        end = S - self._gone  # entries
        self.values[:, start - self._gone : end] = v
        since = 0 if self._stale(k, start, S) else start - self._gone
        k = k if self._plain is None else self._plain[:, since:end]
        self.keys[:, since:end] = self._turned(k, since, S)
        self.length = S
        return self.layer.rotate(q, slice(start, S), S)

    @property
    def _gone(self) -> int:
        """Tokens of the prompt that are not kept."""
        return 0 if self._places is None else self._before - self._places.shape[1]

    def _stale(self, k: Tensor, start: int, S: int) -> bool:
        if self._plain is None:
            return False
        self._plain[:, start - self._gone : S - self._gone] = k
        return start > 0 and not self.layer.rope.same_basis(S, start)

    def _turned(self, k: Tensor, since: int, S: int) -> Tensor:
        """Entries from `since` on, position-free (G, n, D), rotated to their positions."""
        if since or self._places is None:
            return self.layer.rotate(k, slice(since + self._gone, S), S)
        later = torch.arange(self._before, S, device=k.device).expand(len(k), -1)
        places = torch.cat([self._places, later], dim=1)  # each head has its own
        turned = [self.layer.rotate(x[None], own, S) for x, own in zip(k, places, strict=True)]
        return torch.cat(turned)

    def keep(self, tokens: Tensor) -> None:
        """Drops all but some tokens of the prompt; room for others stays the same.

        Args:
            tokens: (G, n) int64 ascending, to keep in each head.
        """
        room = self.capacity - self.length
        self._places, self._before = tokens, self.length
        self.keys, self.values = (_cut(x, tokens, room) for x in (self.keys, self.values))
        self._plain = None if self._plain is None else _cut(self._plain, tokens, room)

    def fill(self, tokens: int, observed: int = 0) -> None:
        """Random contents; see `Prompt.fill`."""
        held = [self.keys, self.values, *([] if self._plain is None else [self._plain])]
        for x in held:
            x[:, :tokens].normal_()
        H, _, D = self.queries.shape
        self.queries = self.queries.new_empty(H, observed, D).normal_()
        self.length = tokens

    def settle(self, length: int) -> None:
        """Sets how many places `put` may use, which may be more than the buffer has."""
        self.rotation = Rotation(self.layer, length, self.keys)

    def put(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        stores: Sequence[Store],
        pages: Pages | None = None,
    ) -> Tensor:
        """Writes one token to stores, or adds it if the cache `grows`; see `Rotation.put`."""
        if self.grows:
            return self.add(q, k, v)
        return self.rotation.put(q, k, v, position, stores, pages)

    def attention(
        self, q: Tensor, keys: Tensor, values: Tensor, count: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """This layer's attention of one token to entries; see `cached_attention`."""
        x = self.layer
        more = (x.scale, x.window, x.softcap, x.sinks, weights)
        return cached_attention(q, keys, values, count, *more)


class Rotation:
    """Rotates single tokens of a layer on their way to where they are kept.

    Args:
        layer: the layer.
        length: number of places.
        like: a tensor of the dtype and on the device of what is rotated.

    Attributes:
        length: number of places.
    """

    def __init__(self, layer: Layer, length: int, like: Tensor):
        self._rope, self._halves, self.length = layer.rope, layer.rope.half_split, length
        # Held here too: a captured step reads them, and the embedding may free its own.
        self._tables = layer.rope.tables(length, like)

    def put(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        stores: Sequence[Store],
        pages: Pages | None = None,
    ) -> Tensor:
        """Writes one token to stores, and rotates its queries.

        Args:
            q, k, v: position-free (H, 1, D) and (G, 1, D).
            position: (1,) int64 on the device, below the length.
            stores, pages: see `append_rotated`.

        Returns:
            The rotated queries (H, 1, D).
        """
        cos, sin = self._tables
        if self._halves or cos is None or sin is None:
            return append_rotated(q, k, v, position, cos, sin, stores, pages)
        q, k = (self._rope.turn(x, cos[position], sin[position]) for x in (q, k))
        return append_rotated(q, k, v, position, None, None, stores, pages)


def _cut(x: Tensor, tokens: Tensor, room: int) -> Tensor:
    """Rows (G, n + room, D) of x (G, C, D): those of `tokens` (G, n), and empty ones."""
    G, n = tokens.shape
    cut = x.new_zeros(G, n + room, x.shape[-1])
    cut[:, :n] = x.gather(1, tokens[..., None].expand(-1, -1, x.shape[-1]))
    return cut
