"""Pages over all that a method kept of one layer, and the choice among them.

Keys have no position here: neither when pages are chosen, nor when they are handed out.
"""

import torch
from torch import Tensor

from longctx.core.contracts.memory import Columns
from longctx.core.kv.pages import known, pages_of
from longctx.kernels.door import PAGE, Pages, page_scores, top_pages

PIECE = 4096  # keys whose bounds are found at once, whole pages


class KeptPages:
    """Pages of one layer's keys and values; the last may be part-filled.

    Args:
        columns: the keys and values, none of which is held here.
        device: where the model computes.

    Attributes:
        length: tokens.
    """

    def __init__(self, columns: Columns, device: torch.device):
        self._columns, self.length = columns, columns.keys.length
        parts = []
        for start in range(0, self.length, PIECE):
            rows = torch.arange(start, min(start + PIECE, self.length), device=device)
            keys = columns.keys.gather(rows).transpose(0, 1)  # (G, n, D)
            parts.append(known(keys, len(rows)))
        self._pages = Pages(*(torch.cat(x, dim=1) for x in zip(*parts, strict=True)))
        self._last = torch.tensor([pages_of(self.length) - 1], device=device)

    def chosen(self, q: Tensor, count: int, scale: float) -> Tensor:
        """The best pages (G, n) for position-free queries (H, 1, D), ascending; the last one in."""
        return top_pages(page_scores(q, *self._pages, scale, self._last), count)

    def entries(self, count: int) -> int:
        """Tokens in so many pages, the last one among them."""
        return self.length - (pages_of(self.length) - count) * PAGE

    def taken(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (G, n * PAGE, D) of pages (G, n); behind the last token, anything.

        Waits for the device. What several heads have chosen is read once.
        """
        entry = torch.arange(PAGE, device=pages.device)
        union = pages.unique()
        rows = (union[:, None] * PAGE + entry).flatten()
        rows = rows[rows < self.length]
        places = torch.searchsorted(union, pages)[..., None] * PAGE + entry  # (G, n, PAGE)
        places = places.flatten(1).clamp_(max=len(rows) - 1)
        heads = torch.arange(len(pages), device=pages.device)[:, None]
        keys, values = (
            column.gather(rows)[places, heads]
            for column in (self._columns.keys, self._columns.values)
        )
        return keys, values
