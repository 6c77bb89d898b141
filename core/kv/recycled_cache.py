"""Keys and values chosen by a full step, and those since, in buffers of fixed size.

Independent of model and schedule: the caller decides when tokens are chosen again.
"""

import torch
from torch import Tensor

from longctx.kernels.door import Store, best_tokens


class Recycled:
    """One layer's recycled cache: K tokens, and one place for the token that attends.

    After a full step its first entries are the chosen tokens, best first. Each later token goes to
    the next free entry or, once there is none, replaces the worst chosen token left.

    Args:
        keys, values: (G, C, D) of the cache that tokens are chosen from.
        budget: K.

    Attributes:
        keys, values: (G, K + 1, D).
        index: (G, K + 1) int64, which entry of that cache each is; for tokens since the full step
            only if `follow` is used.
    """

    def __init__(self, keys: Tensor, values: Tensor, budget: int):
        G = len(keys)
        self._budget = budget
        self.keys = keys.new_zeros(G, budget + 1, keys.shape[-1])
        self.values = values.new_zeros(G, budget + 1, values.shape[-1])
        self.index = torch.zeros(G, budget + 1, dtype=torch.int64, device=keys.device)

    def choose(
        self, weights: Tensor, count: Tensor, keys: Tensor, values: Tensor, pool: int
    ) -> None:
        """Takes the best tokens of a cache.

        Args:
            weights: (G, C) that the cache's entries received.
            count: (1,) int on the device, the cache's entries in use.
            keys, values: (G, C, D), the cache.
            pool: see `best_tokens`.
        """
        best = best_tokens(weights, count, self._budget, pool)
        K = best.shape[1]
        self.index[:, :K] = best
        for own, x in ((self.keys, keys), (self.values, values)):
            torch.gather(x, 1, _spread(best, x), out=own[:, :K])

    def store(self, slot: Tensor) -> Store:
        """Where a token goes; `slot` (1,) is one of `Places.slots`."""
        return Store(self.keys, self.values, slot)

    def follow(self, keys: Tensor, values: Tensor, slot: Tensor, entry: Tensor) -> None:
        """Copies all entries again from their cache, whose keys may have been rotated again.

        Args:
            keys, values: (G, C, D), the cache.
            slot: (1,), the new token's place here.
            entry: (1,), its place in the cache.
        """
        self.index[:, slot] = entry
        for own, x in ((self.keys, keys), (self.values, values)):
            torch.gather(x, 1, _spread(self.index, x), out=own)


def _spread(index: Tensor, x: Tensor) -> Tensor:
    """Rows of x (G, C, D) at `index` (G, K) as `gather` wants them: (G, K, D)."""
    return index[..., None].expand(-1, -1, x.shape[-1])


class Places:
    """Where the next token goes in the recycled caches of several layers, and what it attends to.

    Args:
        layers: how many; each has its first full step before its places are used.
        budget: K, the same for all.
        device: where the counts are.

    Attributes:
        slots: for each layer (1,) int64, the entry of the current token.
        counts: for each layer (1,) int64, how many entries it attends to, its own included.
    """

    def __init__(self, layers: int, budget: int, device: torch.device):
        self._budget = budget
        self._chosen = torch.zeros(layers, dtype=torch.int64, device=device)
        self._since = torch.zeros_like(self._chosen)  # steps since the full one, this included
        self._slots, self._counts = torch.zeros_like(self._since), torch.zeros_like(self._since)
        self.slots, self.counts = self._slots.split(1), self._counts.split(1)

    def next(self) -> None:
        """Moves to the next token in all layers at once."""
        K = self._budget
        self._since += 1
        entries = self._chosen + self._since
        # Beyond K, the worst chosen ones are replaced: K - 1, K - 2, ... after the full step.
        torch.where(entries <= K + 1, entries - 1, K + 1 - self._since, out=self._slots)
        torch.clamp(entries, max=K + 1, out=self._counts)

    def chosen(self, layer: int, count: Tensor) -> None:
        """Records a layer's full step, with `count` (1,) int tokens to choose from."""
        own = slice(layer, layer + 1)
        torch.clamp(count, max=self._budget, out=self._chosen[own])
        self._since[own].zero_()  # `= 0` for a single entry would be a copy from the host
