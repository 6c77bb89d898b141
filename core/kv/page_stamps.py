"""The pages of an answer: when all are in use, the least recently used one is evicted.

RaaS (Hu et al., "Efficient Long-Decoding Inference with Reasoning-Aware Attention Sparsity", 3.2
and 3.3), for all layers at once. Independent of keys and of how scores are computed; everything a
step needs is on the device.
"""

import torch
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.kernels.door import PAGE, Stamps, stamp

LEAST = 4  # pages of an answer; with fewer there is hardly a choice
RULES = ("top", "alpha")
FREE = 1 << 31  # plus its place: the number of an unused page, above all others


def require_pages(count: int, why: str, remedy: str) -> None:
    """Checks that an answer has enough pages.

    Raises:
        UsageError: fewer than `LEAST`, with the given reason and remedy.
    """
    if count < LEAST:
        what = f"RaaS has {max(0, count)} pages for the answer and needs {LEAST}"
        raise UsageError(what, why, remedy)


def require_rule(rule: str, alpha: float) -> None:
    """Checks how pages are stamped.

    Raises:
        ValueError: an unknown rule, or an alpha outside (0, 1).
    """
    if rule not in RULES:
        raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: expected more than 0 and less than 1, got {alpha}")


class Turnover:
    """Stamps of pages, and where the answer's next token goes.

    Each layer and key/value head evicts a page of its own, but all begin a page at the same step.
    The page that receives tokens has the newest stamp and is never evicted.

    Args:
        shape: layers and key/value heads.
        start: tokens before the answer.
        slots: most pages of the answer that are held.
        pinned: pages before them that are stamped too and never evicted.
        first: page of the layers' buffers that stamped pages begin at.
        alpha: see `Stamps`.
        device: where they are.

    Attributes:
        stamps: (L, G, pinned + slots) int64, -1 for pages not in use.
        order: (L, G, pinned + slots) int64, each page's number in the text.
        slot: (L, G) int64, the entry of the buffers that the token goes to.
        position: (1,) int64, tokens before it.
        now: (1,) int64, tokens with it: its stamp.
        place: (1,) int64, tokens before it without those of evicted pages.
        steps, resident, most: tokens of the answer, how many of them are held, and the most that
            were held; on the host.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        start: int,
        slots: int,
        pinned: int,
        first: int,
        alpha: float | None,
        device: torch.device,
    ):
        self.start, self.slots, self._pinned, self._first = start, slots, pinned, first
        page = torch.arange(pinned + slots, device=device)
        stamps = torch.where(page < pinned, start, -1)
        order = torch.where(page < pinned, page, page + FREE)
        self.stamps, self.order = (x.expand(*shape, -1).contiguous() for x in (stamps, order))
        self.slot = torch.zeros(shape, dtype=torch.int64, device=device)
        self._page = torch.zeros((*shape, 1), dtype=torch.int64, device=device)
        self._number = torch.tensor([pinned], device=device)  # of the page that comes next
        # One addition counts all three.
        self._counts = torch.tensor([start, start + 1, start], device=device)
        self.position, self.now, self.place = self._counts.split(1)
        self._alpha = alpha
        self.steps = self.resident = self.most = self._entries = 0

    @property
    def opens(self) -> bool:
        """Whether the next token begins a page."""
        return self.steps % PAGE == 0

    def stamp(self, scores: Tensor) -> None:
        """Renews the stamps by the token's page scores (L, G, pinned + slots)."""
        every = Stamps(self.stamps.flatten(0, 1), self.order.flatten(0, 1), self.now, self._alpha)
        stamp(scores.flatten(0, 1), every)

    def begin(self) -> None:
        """Finds the next token's place; its page gets the newest stamp."""
        if self.opens:
            self._open()
        self.stamps.scatter_(-1, self._page, self.now.expand_as(self._page))

    def _open(self) -> None:
        # No two ages are equal: of equal stamps, the lower number is older.
        age = (self.stamps << 32) + self.order
        self._page.copy_(age[..., self._pinned :].argmin(dim=-1, keepdim=True) + self._pinned)
        self.order.scatter_(-1, self._page, self._number.expand_as(self._page))
        self.slot.copy_((self._page[..., 0] + self._first) * PAGE)
        self._number += 1
        self.place.clamp_(max=self.start + (self.slots - 1) * PAGE)

    def end(self) -> None:
        """Moves to the next entry."""
        self.slot += 1
        self._counts += 1

    def advance(self) -> None:
        """Counts a token on the host."""
        if self.opens:
            self.resident = min(self.resident, (self.slots - 1) * PAGE)
        self.steps, self.resident = self.steps + 1, self.resident + 1
        self._entries += self.resident
        self.most = max(self.most, self.resident)

    @property
    def mean(self) -> float:
        """Mean number of the answer's tokens held, over the steps."""
        return self._entries / max(1, self.steps)

    def ranks(self) -> Tensor:
        """Entries before each of the answer's pages (L, G, slots), in the order of the text."""
        return self.order[..., self._pinned :].argsort(dim=-1).argsort(dim=-1) * PAGE

    def numbers(self) -> Tensor:
        """Pages of the answer before each of its pages (L, G, slots), evicted ones included."""
        return self.order[..., self._pinned :] - self._pinned
