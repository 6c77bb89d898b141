"""A chunk's keys and values put where only the device knows, in buffers that have room for them.

So a chunk is the same work for the host wherever it stands in a document, and can be recorded. The
buffers are those of a `Resident`. It must have room: nothing can grow then, and nothing is checked.
"""

import torch
from torch import Tensor

from longctx.core.kv.coded import Coded, RowForm, pairs
from longctx.kernels.door import Top, rotated_rows, topk_scan


class Spot:
    """Where the next tokens go in the buffers of one device.

    Args:
        seen: () int64 on the device, tokens before them; it is not changed.
    """

    def __init__(self, seen: Tensor):
        self._seen = seen
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, tokens: int) -> tuple[Tensor, Tensor]:
        """The rows (tokens,) of so many, and how many rows there are with them (1,), int64."""
        if tokens not in self._made:  # once for all layers
            rows = torch.arange(tokens, device=self._seen.device) + self._seen
            self._made[tokens] = rows, (self._seen + tokens)[None]
        return self._made[tokens]


class Placed:
    """Keys or values of one layer, to which one chunk is added; see `Resident` and `Keys`.

    Args:
        form: of the rows.
        buffer: as many rows as there will be, or more; changed in place.
        spot: where the chunk goes.

    Attributes:
        length: (1,) int64 on the device, rows with the chunk.
    """

    def __init__(self, form: RowForm, buffer: Coded, spot: Spot):
        self.form, self._buffer, self._spot = form, buffer, spot

    def append(self, new: Coded) -> None:
        """Puts the chunk's rows in their place."""
        rows, self.length = self._spot.of(len(new.rows))
        for into, given in pairs(self._buffer, new):
            into.index_copy_(0, rows, given.to(into.dtype))

    @property
    def resident(self) -> Coded:
        """The whole buffer."""
        return self._buffer

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) of rows that there are."""
        rows, scales = self._buffer
        return rotated_rows(rows, index, None, None, scales, self.form.place.dtype)

    def top(self, q: Tensor, first: int, last: Tensor, k: int) -> Top:
        """See `Keys.top`; `votes` and `best` are as long as the buffer behind `first`."""
        rows, scales = self._buffer.each(lambda x: x[first:])
        return topk_scan(q, rows, k, scales, last - first)
