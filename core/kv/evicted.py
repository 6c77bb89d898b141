"""An evicted KV cache of one layer, and how it is saved.

Each key/value head keeps its own tokens, position-free, so that they can get new positions.
Independent of the method, which decides what stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Place, Snapshot
from longctx.core.model.adapter import Layer
from longctx.core.store.shards import AGAIN
from longctx.kernels.door import kept_rows

WHAT = "tensors in the snapshot"


@dataclass
class Cache:
    """One layer's kept keys and values; each key/value head keeps its own tokens.

    Attributes:
        keys, values: (G, C, D), position-free, in input order.
        positions: (G, C + T) int64, position of each token in the input.
        mass: (G, C + T), the attention that decides what stays; 0 where there is none yet.
        new: keys and values (G, T, D) of a chunk behind them that is not joined; T is 0 if None.
    """

    keys: Tensor
    values: Tensor
    positions: Tensor
    mass: Tensor
    new: tuple[Tensor, Tensor] | None = None

    @classmethod
    def empty(cls, layer: Layer, like: Tensor) -> "Cache":
        """A cache of no tokens, on the device and in the dtype of `like`."""
        G, D = layer.kv_heads, layer.head_dim
        nothing = like.new_zeros(G, 0, D)
        wide = torch.promote_types(like.dtype, torch.float32)
        return cls(nothing, nothing, _whole(like, G, 0), like.new_zeros(G, 0, dtype=wide))

    @property
    def length(self) -> int:
        """Tokens that each head keeps."""
        return self.positions.shape[1]

    def extended(self, keys: Tensor, values: Tensor, start: int | Tensor) -> "Cache":
        """The cache with T more tokens behind it, at input positions from `start`.

        Args:
            keys, values: (G, T, D); they are not copied before they are joined or evicted.
            start: the first one's position.
        """
        (G, T, _), cache = keys.shape, self.joined()
        places = _whole(keys, G, T) + start
        return Cache(
            cache.keys,
            cache.values,
            torch.cat([cache.positions, places], dim=1),
            torch.cat([cache.mass, cache.mass.new_zeros(G, T)], dim=1),
            (keys, values),
        )

    def joined(self) -> "Cache":
        """The same with all keys and values in one piece."""
        if self.new is None:
            return self
        keys, values = (
            torch.cat(parts, dim=1)
            for parts in zip((self.keys, self.values), self.new, strict=True)
        )
        return Cache(keys, values, self.positions, self.mass)

    def attend(self, layer: Layer, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Attends the chunk behind the cache to both, at consecutive positions from 0.

        Args:
            layer: the layer.
            q: position-free queries (H, T, D).

        Returns:
            Rotated q, rotated keys (G, C + T, D), attention (H, T, D), and log-sum-exps (H, T) if
            known.
        """
        assert self.new is not None
        keys, values = self.new
        q, k = layer.rotate_chunk(q, keys, self.keys)
        return q, k, *layer.attention_lse(q, k, (self.values, values))

    def kept(self, index: Tensor) -> "Cache":
        """Only the tokens at `index` (G, n), ascending in each head."""
        new = self.new or (self.keys[:, :0], self.values[:, :0])
        return Cache(*kept_rows(self.keys, self.values, *new, self.positions, self.mass, index))

    def latest(self, count: int) -> "Cache":
        """At most the last `count` tokens: the window of a sliding layer."""
        G, S = self.positions.shape
        index = torch.arange(max(0, S - count), S, device=self.keys.device)
        return self.kept(index.expand(G, -1))


def _whole(like: Tensor, G: int, n: int) -> Tensor:
    return torch.arange(n, device=like.device).expand(G, n)


def tensors_of(caches: Sequence[Cache | None]) -> list[Tensor]:
    """All that caches hold, for `of_tensors`; nothing while one of them is missing."""
    found = [cache for cache in caches if cache is not None]
    whole = len(found) == len(caches)
    return [x for c in found for x in (c.keys, c.values, c.positions, c.mass)] if whole else []


def of_tensors(tensors: Sequence[Tensor]) -> list[Cache | None]:
    """The caches of layers 0, 1, ... that `tensors_of` was given."""
    parts = (tensors[first : first + 4] for first in range(0, len(tensors), 4))
    return [Cache(keys, values, places, mass) for keys, values, places, mass in parts]


# --- saving ---


def saved(caches: Sequence[Cache | None], seen: int, with_mass: bool) -> Snapshot:
    """The caches of the layers 0, 1, ... and the count of tokens read, as a snapshot."""
    tensors = {"seen": torch.tensor(seen)}
    for index, cache in enumerate(caches):
        if cache is not None:
            tensors[f"keys.{index}"] = cache.keys
            tensors[f"values.{index}"] = cache.values
            tensors[f"positions.{index}"] = cache.positions.to(torch.int64)
            if with_mass:
                tensors[f"mass.{index}"] = cache.mass
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def restored(
    snapshot: Snapshot, layers: Sequence[Layer], place: Place, with_mass: bool, method: str
) -> tuple[list[Cache | None], int]:
    """The caches and count that `saved` was given.

    Args:
        snapshot: tensors on the CPU.
        layers: those that have caches.
        place: where to keep them.
        with_mass: whether the masses were saved.
        method: its name, for messages.

    Raises:
        StateMismatch: names, shapes, types or positions are not those that `saved` gives.
    """
    _require_fit(snapshot, layers, with_mass, method)
    seen = int(snapshot["seen"])
    if not seen:
        return [None] * len(layers), 0
    return [_cache(snapshot, n, place.of(layer)) for n, layer in enumerate(layers)], seen


def _cache(snapshot: Snapshot, index: int, place: Place) -> Cache:
    keys, values = (place.put(snapshot[f"{name}.{index}"]) for name in ("keys", "values"))
    positions = snapshot[f"positions.{index}"].to(keys.device)
    wide = torch.promote_types(keys.dtype, torch.float32)
    mass = snapshot.get(f"mass.{index}")
    if mass is None:
        mass = torch.zeros(positions.shape, dtype=wide, device=keys.device)
    return Cache(keys, values, positions, mass.to(keys.device, wide))


def _require_fit(snapshot: Snapshot, layers: Sequence[Layer], with_mass: bool, method: str) -> None:
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"seen": ((), torch.int64)}
    has_read = "seen" in snapshot and snapshot["seen"].any()
    for index, layer in enumerate(layers if has_read else ()):
        keys = snapshot.get(f"keys.{index}", torch.zeros(0))
        heads = (layer.kv_heads, *keys.shape[1:2])  # (G, C)
        expected[f"positions.{index}"] = (heads, torch.int64)
        expected[f"keys.{index}"] = ((*heads, layer.head_dim), keys.dtype)
        expected[f"values.{index}"] = ((*heads, layer.head_dim), keys.dtype)
        if with_mass:
            wide = torch.promote_types(keys.dtype, torch.float32)
            expected[f"mass.{index}"] = (heads, wide)
        require(keys.ndim == 3 and keys.is_floating_point(), WHAT, method)
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in snapshot.items()}
    require(found == expected, WHAT, method)
    require(_ascend(snapshot), WHAT, method)


def _ascend(snapshot: Mapping[str, Tensor]) -> bool:
    """Whether positions are those of tokens read, in input order."""
    alike: dict[torch.Size, list[Tensor]] = {}  # looked at together: a GPU is waited for each time
    for name, places in snapshot.items():
        if name.startswith("positions."):
            alike.setdefault(places.shape, []).append(places)
    seen = snapshot["seen"]
    return all(bool(_between(torch.stack(some), seen)) for some in alike.values())


def _between(places: Tensor, seen: Tensor) -> Tensor:
    """Whether places (n, G, C) ascend from 0 or more to less than `seen`, (); one device."""
    inside = (places[..., :1] >= 0).all() & (places[..., -1:] < seen.to(places.device)).all()
    return inside & (places[..., 1:] > places[..., :-1]).all()


def require(fits: bool, part: str, method: str) -> None:
    """Raises StateMismatch, naming the part, unless it fits the method."""
    if not fits:
        raise StateMismatch(
            f"the {part} of the document cannot be those of the method {method!r}",
            "names, shapes or types are not what it writes with these options and this model",
            AGAIN,
        )


def saved_bytes(
    layers: Sequence[Layer], budget: int, chunk: int, tokens: int, itemsize: int, with_mass: bool
) -> int:
    """The most bytes that `saved` gives: evicted caches and an unfinished chunk.

    Args:
        layers: those that have caches.
        budget, chunk: tokens.
        tokens: read so far.
        itemsize: bytes of an element of keys and values.
        with_mass: whether the masses are saved.
    """
    total = 0
    for layer in layers:
        kept = budget if layer.window is None else layer.window
        held = layer.kv_heads * min(tokens, kept + chunk)
        total += held * (2 * layer.head_dim * itemsize + 8 + with_mass * max(4, itemsize))
    return total
