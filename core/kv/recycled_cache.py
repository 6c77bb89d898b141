"""Keys and values chosen by a full step, and those since, in buffers of fixed size.

Knows no model and no schedule: who writes to it says when tokens are chosen anew.
"""

import torch
from torch import Tensor

from longctx.kernels.door import Store, best_tokens


class Recycled:
    """One layer's recycled cache: K tokens, and one place for the token that attends.

    After a full step its first entries are the chosen tokens, best first. Each token since goes to
    the next free entry, and once there is none, over the worst chosen one that is left.

    Args:
        keys, values: (G, C, D) of the cache that tokens are chosen from.
        budget: K.

    Attributes:
        keys, values: (G, K + 1, D).
        index: (G, K + 1) int64, which entry of that cache each is; of tokens since the full step
            only where `follow` is used.
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
        """Takes the best of a cache.

        Args:
            weights: (G, C) that the cache's entries received.
            count: (1,) int on the device, its entries in use.
            keys, values: (G, C, D), the cache.
            pool: see `best_tokens`.
        """
        best = best_tokens(weights, count, self._budget, pool)
        K = best.shape[1]
        self.index[:, :K] = best
        for own, x in ((self.keys, keys), (self.values, values)):
            torch.gather(x, 1, _spread(best, x), out=own[:, :K])

    def store(self, slot: Tensor) -> Store:
        """Where a token goes; `slot` (1,) as `Places` has it."""
        return Store(self.keys, self.values, slot)

    def follow(self, keys: Tensor, values: Tensor, slot: Tensor, entry: Tensor) -> None:
        """Takes all entries again from their cache, where the keys may have been turned anew.

        Args:
            keys, values: (G, C, D), the cache.
            slot: (1,), the new token's place here.
            entry: (1,), its place there.
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
        layers: how many; each has had its first full step before it is asked.
        budget: K, of all of them.
        device: where.

    Attributes:
        slots: of each layer, (1,) int64: the entry of the token that is read now.
        counts: likewise, entries that it attends to: the first ones, its own among them.
    """

    def __init__(self, layers: int, budget: int, device: torch.device):
        self._budget = budget
        self._chosen = torch.zeros(layers, dtype=torch.int64, device=device)
        self._since = torch.zeros_like(self._chosen)  # steps since the full one, this included
        self._slots, self._counts = torch.zeros_like(self._since), torch.zeros_like(self._since)
        self.slots, self.counts = self._slots.split(1), self._counts.split(1)

    def next(self) -> None:
        """Goes on by one token, in all layers at once."""
        K = self._budget
        self._since += 1
        entries = self._chosen + self._since
        # Beyond K, the worst chosen ones make room: after the full step K - 1, K - 2, ...
        torch.where(entries <= K + 1, entries - 1, K + 1 - self._since, out=self._slots)
        torch.clamp(entries, max=K + 1, out=self._counts)

    def chosen(self, layer: int, count: Tensor) -> None:
        """Says that a layer has had a full step, with so many tokens to choose from: (1,) int."""
        own = slice(layer, layer + 1)
        torch.clamp(count, max=self._budget, out=self._chosen[own])
        self._since[own].zero_()  # `= 0` for a single entry would be a copy from the host
