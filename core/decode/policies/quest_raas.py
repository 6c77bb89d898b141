"""Quest and RaaS: as quest of the prompt, as raas of the answer.

Hu et al., "Efficient Long-Decoding Inference with Reasoning-Aware Attention Sparsity", recommend it
for long prompts. See `quest.py` and `raas.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.contracts import policy
from longctx.core.contracts.memory import Columns, Whole
from longctx.core.contracts.policy import Looks, PolicyOptions, Spent
from longctx.core.kv.answer_pages import AnswerPages, settled
from longctx.core.kv.kept_pages import KeptPages
from longctx.core.kv.page_stamps import LEAST, Turnover, require_rule
from longctx.core.kv.pages import known, paged, pages_of, rotated_each
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Layer
from longctx.kernels.door import (
    PAGE,
    Store,
    append_rotated,
    page_scores,
    paged_attention,
    top_pages,
)


@dataclass(frozen=True)
class Options(PolicyOptions):
    """Options of both.

    Attributes:
        budget: tokens of the prompt that a token attends to, in whole pages; 32 or more.
        answer_budget: tokens of the answer that are held, in whole pages; 64 or more.
        rule: as that of `raas`, for pages of the answer.
        alpha: as that of `raas`.
    """

    budget: int = 4096
    answer_budget: int = 1024  # here RaaS about equals full attention in its paper's tasks
    rule: str = "top"
    alpha: float = 1e-4

    def __post_init__(self) -> None:
        for name, least in (("budget", 2 * PAGE), ("answer_budget", LEAST * PAGE)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected {least} or more, got {getattr(self, name)}")
        require_rule(self.rule, self.alpha)

    less = "lower `answer_budget` of quest+raas, or --max-new-tokens"

    def reserve(self, answer: int) -> int:
        """As many as are held and a page, as the prompt's last page may not be full."""
        return min(answer, self.answer_budget) + PAGE

    @property
    def share(self) -> float | None:
        """The share of the softmax that earns a stamp; None: the better half does."""
        return self.alpha if self.rule == "alpha" else None


class Recalling(policy.Recalling):
    """The best pages of everything kept, and what is held of the answer.

    Pages are chosen and stamped by position-free keys and queries; the chosen ones, in document
    order, and then the answer's get consecutive positions, the token the last one. The last page
    of what was kept, with the end of the question, is always chosen. The answer's tokens are not
    added to what was kept. Layers with a sliding window attend as the method does. If both budgets
    exceed the trained window, fewer kept pages are chosen.

    Raises:
        UsageError: the answer's budget leaves fewer than two pages of the window.
    """

    chooses = True

    def __init__(self, options: Options, recalled: Whole, window: int):
        self._options, self._recalled, self._window = options, recalled, window
        self._kept = self._held = recalled.kept
        self._layers: dict[int, _RecalledLayer] = {}
        self._looks = Looks({})
        self._count = min(options.budget, window - options.answer_budget) // PAGE
        self._narrowed = min(pages_of(self._kept), options.budget // PAGE) > self._count
        if self._count < 2:
            raise UsageError(
                f"cannot decode with an answer_budget of {options.answer_budget:,}",
                f"the model's window is {window:,} tokens, and two pages of the document have to "
                "fit in too",
                "Lower `answer_budget` of quest+raas.",
            )

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to [chosen pages | answer]; see `Memory.attend`."""
        self._looks.windows[layer.index] = layer.window
        if layer.window is not None:
            return self._recalled.attend(layer, q, k, v)
        if layer.index not in self._layers:
            columns = self._recalled.kept_layer(layer.index)
            given = columns, self._count, self._options, self._window
            self._layers[layer.index] = _RecalledLayer(layer, k, v, *given)
        return self._layers[layer.index].attend(q, k, v)

    def advance(self) -> None:
        """Counts the tokens held and attended to."""
        full = most = 0
        for held in self._layers.values():
            held.turnover.advance()
            full, most = held.before + held.turnover.resident, held.turnover.most
        self._looks.add(self._kept + self._looks.steps + 1, full)
        self._held = self._kept + most

    def spent(self) -> Spent:
        """How much was attended to and held."""
        return Spent(self._looks.mean, None, self._held, narrowed=self._narrowed)


class Policy(AnswerPages):
    """The prompt's best pages for each token, and everything held of the answer.

    The prompt stays; its last page is always chosen, and counted. Only pages of the answer are
    stamped and evicted. Differences from the papers are those of `quest.py` and `raas.py`.
    """

    recalling = Recalling

    def __init__(self, options: Options, prompt: Prompt, window: int):
        first, most = pages_of(prompt.length), options.answer_budget
        slots = settled(prompt, most + PAGE, most // PAGE, window)
        slots = min(slots, prompt.capacity // PAGE - first)
        self._first, self._count = first, min(first, options.budget // PAGE)
        chosen = prompt.length - (first - self._count) * PAGE  # all but the last page are full
        given = first, slots, False, chosen, window, options.share
        super().__init__(prompt, paged(prompt), *given)
        self._chooses = self._count < first
        slot = self._turnover.slot
        self._last = torch.tensor([first - 1], device=slot.device)  # page of the prompt
        # [chosen pages of the prompt | the answer's], reused by one layer after another
        own = torch.arange(first - self._count, first + slots, device=slot.device)
        self._pages = own.repeat(slot.shape[1], 1)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends one token to [chosen pages of the prompt | answer]; see `Memory.attend`."""
        if layer.window is not None:
            return self.slide(layer, q, k, v)
        q, held = self.write(layer, q, k, v), self._paged[layer.index]
        if not self._chooses:
            self.score(layer, q, self._own)
            return held.attention(q, None)
        scores = self.score(layer, q, slice(0, self._own.stop), self._last)
        top_pages(scores[:, : self._first], self._count, self._pages[:, : self._count])
        return held.attention(q, self._pages)

    def scored(self) -> float:
        """Nearly all answer pages, and the prompt's if there is a choice; see `Policy`."""
        pages = (self._first if self._chooses else 0) + self._turnover.mean / PAGE
        return self._looks.share * pages


class _RecalledLayer:
    """One layer: what was kept of it, and the answer's pages, position-free.

    Args:
        layer: the layer.
        k, v: (G, 1, D) of a token, for their shapes, dtype and device.
        columns: what was kept.
        count: most pages of it that are chosen.
        options: `Options`.
        window: tokens that the model was trained on.

    Attributes:
        turnover: of the answer's pages.
        before: tokens in the chosen pages.
    """

    def __init__(
        self,
        layer: Layer,
        k: Tensor,
        v: Tensor,
        columns: Columns,
        count: int,
        options: Options,
        window: int,
    ):
        self._layer, self._window, G = layer, window, len(k)
        self._kept = KeptPages(columns, k.device)
        self._count = min(count, pages_of(self._kept.length))
        self.before = self._kept.entries(self._count)
        slots = options.answer_budget // PAGE
        given = (1, G), self._kept.length, slots, 0, 0, options.share, k.device
        self.turnover = Turnover(*given)
        self._keys, self._values = (x.new_zeros(G, slots * PAGE, x.shape[-1]) for x in (k, v))
        self._pages = known(self._keys, 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention (H, 1, D) of a token to the pages it chooses, the answer and itself."""
        x, turnover = self._layer, self.turnover
        turnover.begin()
        stores = [Store(self._keys, self._values, turnover.slot[0])]
        append_rotated(q, k, v, turnover.position, None, None, stores, self._pages)
        turnover.stamp(page_scores(q, *self._pages, x.scale)[None])
        chosen = self._kept.taken(self._kept.chosen(q, self._count, x.scale))
        keys = torch.cat([self._rotated(chosen[0]), self._answer()], dim=1)
        values = torch.cat([chosen[1], self._values], dim=1)
        q = x.rotate(q, turnover.place - turnover.start + self.before, self._window)
        out = paged_attention(q, keys, values, self._filled(), None, x.scale, x.softcap, x.sinks)
        turnover.end()
        return out

    def _rotated(self, keys: Tensor) -> Tensor:
        """Chosen keys (G, n, D) at consecutive positions from 0; the rest are unused."""
        places = torch.arange(keys.shape[1], device=keys.device).clamp_(max=self.before - 1)
        return self._layer.rotate(keys, places, self._window)

    def _answer(self) -> Tensor:
        """The answer's keys (G, slots * PAGE, D), positioned after the chosen ones."""
        entry = torch.arange(PAGE, device=self._keys.device)
        places = self.before + self.turnover.ranks()[0, ..., None] + entry  # (G, slots, PAGE)
        return rotated_each(self._layer, self._keys, places, self._window)

    def _filled(self) -> Tensor:
        """Entries in use (G, pages) of the chosen pages and the answer's."""
        full = self._pages.filled.new_full((len(self._keys), self._count), PAGE)
        full[:, -1] -= self._count * PAGE - self.before
        return torch.cat([full, self._pages.filled], dim=1)
