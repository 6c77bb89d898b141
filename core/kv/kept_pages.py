"""Pages over everything that a method kept of one layer, and the choice among them.

Keys are position-free, both when pages are chosen and when they are returned.
"""

import torch
from torch import Tensor

from longctx.core.contracts.memory import Columns
from longctx.core.kv.pages import known, pages_of
from longctx.kernels.door import PAGE, Pages, page_scores, top_pages

PIECE = 4096  # keys whose bounds are computed at once; whole pages


class KeptPages:
    """Pages of one layer's keys and values; the last may be part-filled.

    Args:
        columns: the keys and values; no copy is held here.
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
        """The best pages (G, n) for position-free q (H, 1, D), ascending, always with the last."""
        return top_pages(page_scores(q, *self._pages, scale, self._last), count)

    def entries(self, count: int) -> int:
        """Tokens in `count` pages, the last one among them."""
        return self.length - (pages_of(self.length) - count) * PAGE

    def taken(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (G, n * PAGE, D) of pages (G, n); undefined after the last token.

        Waits for the device. Pages that several heads chose are read once.
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
