"""One layer of Recycled Attention: when it makes a full step, and what it recycles.

Independent of model and reading method; `core/decode/policies/recycled.py` states the rules.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.contracts.memory import Seen
from longctx.core.kv.recycled_cache import Places, Recycled
from longctx.core.model.adapter import Layer
from longctx.kernels.door import append_rotated, cached_attention

FULL, RECYCLED, COMPARING = "full", "recycled", "comparing"  # steps of a layer


class Schedule:
    """Which kind each step of one layer is, where that is known before its query is.

    Args:
        longest: most recycled steps after a full one.
        compare: steps from one comparison to the next; None: never compares.

    Attributes:
        refreshes: full steps so far.
        since: steps since the last one.
    """

    def __init__(self, longest: int, compare: int | None = None):
        self._longest, self._compare = longest, compare
        self.refreshes = self.since = 0
        self._uncompared = 0

    @property
    def planned(self) -> str:
        """The kind of the next step; a comparing one may become a full one."""
        if self.since == self._longest:
            return FULL
        return COMPARING if self._uncompared + 1 == self._compare else RECYCLED

    def advance(self, done: str) -> None:
        """Records what a step was; a full one needs no comparison."""
        self.refreshes += done == FULL
        self.since = 0 if done == FULL else self.since + 1
        self._uncompared = self._uncompared + 1 if done == RECYCLED else 0


class Cycle:
    """One layer's recycled cache, and when it is chosen again.

    Args:
        recycled: the cache.
        schedule: the schedule.
        pool: see `best_tokens`.
        similarity: cosine of mean queries up to which a comparing step is a full one.
    """

    def __init__(
        self, recycled: Recycled, schedule: Schedule, pool: int, similarity: float | None = None
    ):
        self.recycled, self.schedule = recycled, schedule
        self._pool = pool
        self._similarity = 1.0 if similarity is None else similarity  # None: nothing is compared
        self._query = torch.zeros_like(recycled.keys[0, 0], dtype=_wide(recycled.keys))  # (D,)

    def step(self, q: Tensor) -> str:
        """The kind of step for these position-free queries (H, 1, D).

        `COMPARING` means compared, and recycles. Waits for the device if it compares.
        """
        planned = self.schedule.planned
        if planned != COMPARING:
            return planned
        cosine = F.cosine_similarity(self._mean(q), self._query, dim=0)
        return COMPARING if min(float(cosine), 1.0) > self._similarity else FULL

    def look(
        self, layer: Layer, plain: Tensor, q: Tensor, keys: Tensor, values: Tensor, count: Tensor
    ) -> Tensor:
        """A full step: attends to a cache and chooses from it.

        Args:
            layer: the layer.
            plain: position-free queries (H, 1, D).
            q: the same, rotated.
            keys, values: (G, C, D), the cache.
            count: (1,) int on the device, the cache's entries in use.

        Returns:
            (H, 1, D).
        """
        weights = torch.empty(keys.shape[:2], dtype=_wide(keys), device=keys.device)
        more = layer.scale, None, layer.softcap, layer.sinks, weights
        out = cached_attention(q, keys, values, count, *more)
        self.recycled.choose(weights, count, keys, values, self._pool)
        if self._similarity is not None:
            self._query.copy_(self._mean(plain))
        return out

    def _mean(self, q: Tensor) -> Tensor:
        return q[:, 0].to(self._query.dtype).mean(dim=0)


class Turn:
    """A cycle over the windows that a reading method selects; later tokens follow the last one.

    Args:
        cycle: the layer's.

    Attributes:
        count: (1,) int on the device, entries that the last token attended to.
    """

    def __init__(self, cycle: Cycle):
        self.cycle = cycle
        keys = cycle.recycled.keys
        self._places = Places(1, keys.shape[1] - 1, keys.device)
        self.count = self._position = torch.zeros(1, dtype=torch.int64, device=keys.device)
        self._length = 0

    def look(self, layer: Layer, plain: Tensor, seen: Seen) -> Tensor:
        """A full step (H, 1, D): attends to a selection; see `Cycle.look`."""
        self.count, self._position, self._length = seen.total, seen.total - 1, seen.length
        self._places.chosen(0, seen.total)
        return self.cycle.look(layer, plain, seen.q, seen.keys, seen.values, seen.total)

    def holds(self, layer: Layer) -> bool:
        """Whether the next token can attend to keys as rotated for the last selection."""
        return layer.rope.same_basis(self._length, self._length + self.cycle.schedule.since + 1)

    def recycle(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A recycled step (H, 1, D) of a token: position-free (H, 1, D) and (G, 1, D)."""
        self._places.next()
        self._position = self._position + 1
        length = self._length + self.cycle.schedule.since + 1
        q, k = (layer.rotate(x, self._position, length) for x in (q, k))
        own, slot = self.cycle.recycled, self._places.slots[0]
        self.count = self._places.counts[0].clone()
        q = append_rotated(q, k, v, self._position, None, None, [own.store(slot)])
        more = layer.scale, None, layer.softcap, layer.sinks
        return cached_attention(q, own.keys, own.values, self.count, *more)


def _wide(x: Tensor) -> torch.dtype:
    """The dtype of attention weights."""
    return torch.promote_types(x.dtype, torch.float32)
