"""Quest: the pages that fit it best.

Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", ICML 2024.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts.policy import PolicyOptions
from longctx.core.kv.pages import Paged, paged, pages_of
from longctx.core.kv.prompt import Prompt
from longctx.core.kv.prompt_policy import PromptPolicy
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE, Store, top_pages


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of Quest.

    Attributes:
        budget: tokens that a token attends to, in whole pages; 32 or more.
    """

    budget: int = 4096  # the paper's largest, where little is lost in any of its tasks

    def __post_init__(self) -> None:
        if self.budget < 2 * PAGE:
            raise ValueError(f"budget: expected {2 * PAGE} or more, got {self.budget}")


class Policy(PromptPolicy):
    """The best pages of each key/value head, the last one always among them.

    A page's score is the largest product that a key within its bounds can have with a query, the
    largest over the queries of a key/value head. Differences from the paper, which chooses pages
    for each query head: query heads that share keys share their pages, so that each is read once.
    Differences from the published code: the first two layers choose like the others; layers with a
    sliding window attend to that window.
    """

    def __init__(self, options: Options, prompt: Prompt, window: int):
        super().__init__(prompt)
        self._paged = paged(prompt)
        self._budget = options.budget // PAGE
        self._chooses = prompt.capacity > self._budget * PAGE
        self._page = self._position // PAGE  # the last one
        self._scored = 0

    @property
    def kind(self) -> str | None:
        """Every step is like the one before."""
        return None if self._grows else "quest"

    def begin_token(self) -> None:
        """Finds the last page."""
        torch.div(self._position, PAGE, rounding_mode="floor", out=self._page)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to the pages that fit it best; see `Memory.attend`."""
        cache, held = self._caches[layer.index], self._paged.get(layer.index)
        stores = [Store(cache.keys, cache.values, self._position)]
        q = cache.put(q, k, v, self._position, stores, held and held.pages)
        if held is None:
            return cache.attention(q, cache.keys, cache.values, self._count)
        if cache.grows:
            held.renew(cache.length)
        return held.attention(q, self._chosen(held, q) if self._chooses else None)

    def _chosen(self, held: Paged, q: Tensor) -> Tensor:
        """Pages (G, budget), ascending."""
        return top_pages(held.scores(q, always=self._page), self._budget)

    def advance(self) -> None:
        """Counts the entries attended to."""
        total = self._start + self._looks.steps + 1
        beyond = pages_of(total) - self._budget  # pages left out; all are full
        self._looks.add(total, total - max(0, beyond) * PAGE)
        self._scored += pages_of(total) if self._chooses else 0

    def scored(self) -> float:
        """All pages, if there is a choice; see `Policy`."""
        return self._looks.share * self._scored / max(1, self._looks.steps)
