"""Quest: everything stays, and each token attends to the pages that fit it best.

Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", ICML 2024.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts import policy
from longctx.core.contracts.policy import Looks, PolicyOptions, Spent
from longctx.core.kv.pages import Paged, pages_of
from longctx.core.kv.prompt import LayerCache, Prompt
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE, Store, top_pages


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of Quest.

    Attributes:
        budget: tokens that a token attends to, in whole pages. The paper goes from 256 to 4,096:
            at the most of it, what is lost is little in all of its tasks.
    """

    budget: int = 4096

    def __post_init__(self) -> None:
        if self.budget < 2 * PAGE:
            raise ValueError(f"budget: expected {2 * PAGE} or more, got {self.budget}")


class Policy(policy.Policy):
    """The best pages of each key/value head, the last one always among them.

    A page is worth the largest product that a key within its bounds can have with a query, the
    largest over the queries of a key/value head. Differences from the paper, which has a page
    choice for each query head: query heads that share keys share their pages, so that each is read
    once. Differences from the published code: the first two layers choose like the others; layers
    with a sliding window attend to that.

    Args:
        options: `Options`.
        prompt: read in full, with room for the answer.
        window: tokens that the model was trained on.
    """

    def __init__(self, options: Options, prompt: Prompt, window: int):
        self._caches, self._start = prompt.caches, prompt.length
        self._grows = any(cache.grows for cache in self._caches.values())
        self._paged = {
            index: Paged(cache)
            for index, cache in self._caches.items()
            if cache.layer.window is None
        }
        self._budget = options.budget // PAGE
        self._chooses = prompt.capacity > self._budget * PAGE
        device = next(iter(self._caches.values())).keys.device
        # Tokens before the next one, and with it; one addition counts both.
        self._counts = torch.tensor([self._start, self._start + 1], device=device)
        self._position, self._count = self._counts.split(1)
        self._page = self._position // PAGE  # the last one
        self._looks, self._scored = Looks(prompt.windows), 0

    @property
    def kind(self) -> str | None:
        """Every step is like the one before."""
        return None if self._grows else "quest"

    def begin_token(self) -> None:
        """Finds the last page."""
        torch.div(self._position, PAGE, rounding_mode="floor", out=self._page)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to the pages that fit it best; see `Memory.attend`."""
        cache, paged = self._caches[layer.index], self._paged.get(layer.index)
        q = self._put(cache, paged, q, k, v)
        if paged is None:
            return cache.attention(q, cache.keys, cache.values, self._count)
        return paged.attention(q, self._chosen(paged, q) if self._chooses else None)

    def _put(
        self, cache: LayerCache, paged: Paged | None, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """Takes one token; its rotated queries (H, 1, D)."""
        if not cache.grows:
            stores = [Store(cache.keys, cache.values, self._position)]
            return cache.put(q, k, v, self._position, stores, paged and paged.pages)
        q = cache.add(q, k, v)
        if paged is not None:
            paged.renew(cache.length)
        return q

    def _chosen(self, paged: Paged, q: Tensor) -> Tensor:
        """Pages (G, budget), ascending."""
        return top_pages(paged.scores(q, always=self._page), self._budget)

    def end_token(self) -> None:
        """The next token has the next place."""
        self._counts += 1

    def advance(self) -> None:
        """Counts the entries that were attended to."""
        total = self._start + self._looks.steps + 1
        beyond = pages_of(total) - self._budget  # pages that were left out; all are full
        self._looks.add(total, total - max(0, beyond) * PAGE)
        self._scored += pages_of(total) if self._chooses else 0

    def spent(self) -> Spent:
        """The chosen pages of each step; everything is held."""
        return Spent(self._looks.mean, None, self._start + self._looks.steps)

    def scored(self) -> float:
        """All pages, where there is a choice; see `Policy`."""
        return self._looks.share * self._scored / max(1, self._looks.steps)
