"""Scanned keys: as many as fit on the device, the rest in host memory."""

from functools import reduce
from itertools import chain

from torch import Tensor

from longctx.core.kv.tiered import Tiered
from longctx.kernels.door import Top, topk_scan
from longctx.kernels.topk_scan_ref import count_votes, merge


class Keys(Tiered):
    """Keys that are scanned, wherever they are; see `Tiered`."""

    def top(self, q: Tensor, first: int, last: int, k: int) -> Top:
        """The best keys among rows [first, last) for each query, and their votes.

        Args:
            q: position-free queries (H, T, D).
            first, last: rows; returned indices count from `first`.
            k: keys that each query chooses.
        """
        near = self._near.coded().part(first, last)
        if last <= self._near.length:
            return topk_scan(q, near.rows, k, near.scales)
        parts = [(first, near)] if len(near.rows) else []
        beyond = self._near.length
        far = self._far.pieces(max(0, first - beyond), last - beyond)
        found = (
            (here.scores, here.keys + (low - first))
            for low, part in chain(parts, ((beyond + low, part) for low, part in far))
            for here in [topk_scan(q, part.rows, k, part.scales)]
        )
        scores, index = reduce(lambda best, more: merge(best, more, k), found)
        return Top(scores, index, *count_votes(scores, index, last - first))
