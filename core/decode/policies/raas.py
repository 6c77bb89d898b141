"""RaaS: the prompt, and what of the answer is still in use.

Hu et al., "Efficient Long-Decoding Inference with Reasoning-Aware Attention Sparsity", 3.2, 3.3.
"""

from dataclasses import dataclass

from torch import Tensor

from longctx.core.contracts.policy import PolicyOptions
from longctx.core.kv.answer_pages import AnswerPages, settled
from longctx.core.kv.page_stamps import LEAST, require_pages, require_rule
from longctx.core.kv.pages import paged, pages_of
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Layer
from longctx.kernels.door import PAGE


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of RaaS.

    Attributes:
        budget: tokens that are held, the prompt's included, in whole pages; 80 or more.
        rule: which pages get the newest stamp: `top`, the better half of those held; `alpha`, those
            with enough of the score.
        alpha: share of the softmax over the pages' scores that is enough, with `rule=alpha`.
    """

    budget: int = 4096  # the paper: up to 1,024, but here a prompt has passages too
    rule: str = "top"
    alpha: float = 1e-4

    def __post_init__(self) -> None:
        least = (LEAST + 1) * PAGE  # a prompt has at least one page
        if self.budget < least:
            raise ValueError(f"budget: expected {least} or more, got {self.budget}")
        require_rule(self.rule, self.alpha)

    less = ""

    def reserve(self, answer: int) -> int:
        """The fewest that must be held: the window, like the budget, is kept by evicting pages."""
        return min(answer, LEAST * PAGE)

    def require(self, prompt: int) -> None:
        """Checks that the prompt leaves four pages of the budget; see `PolicyOptions`."""
        first = pages_of(prompt)
        require_pages(
            self.budget // PAGE - first,
            f"the prompt of {prompt:,} tokens takes {first} of the {self.budget // PAGE} pages of "
            f"its budget of {self.budget:,} tokens",
            f"Raise `budget` to {(first + LEAST) * PAGE} or more, gather less, or use --decode "
            "quest+raas, which has a budget for the answer alone.",
        )


class Policy(AnswerPages):
    """Everything held; when a page begins without room, the one with the oldest stamp is evicted.

    The prompt's pages, its part-filled last one included, are never evicted; the answer begins a
    page of its own. A token scores the pages, the last including itself, stamps them, and attends
    to all. What the paper leaves open: each key/value head has its own stamps, a page's score being
    the largest over its query heads; the half of `top` counts the prompt's pages; of equal stamps
    the page that comes first in the text is evicted; the page being filled always has the newest
    stamp; layers with a sliding window attend to that window and hold no more.

    Raises:
        UsageError: the prompt leaves fewer than four pages of the budget.
    """

    def __init__(self, options: Options, prompt: Prompt, window: int):
        options.require(prompt.length)
        first = pages_of(prompt.length)
        slots = settled(prompt, LEAST * PAGE, options.budget // PAGE - first, window)
        alpha = options.alpha if options.rule == "alpha" else None
        held = paged(prompt, first + slots)
        super().__init__(prompt, held, first, slots, True, prompt.length, window, alpha)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to everything held; see `Memory.attend`."""
        if layer.window is not None:
            return self.slide(layer, q, k, v)
        q, held = self.write(layer, q, k, v), self._paged[layer.index]
        self.score(layer, q, self._stamped)
        return held.attention(q, None)

    def scored(self) -> float:
        """Nearly all pages held; see `Policy`."""
        return self._looks.share * (self._before + self._turnover.mean) / PAGE
