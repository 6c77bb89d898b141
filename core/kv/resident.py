"""Rows on the model's device, in a buffer that grows at its end."""

import copy

from torch import Tensor

from longctx.core.contracts.memory import Held
from longctx.core.kv.coded import Coded, RowForm, write
from longctx.kernels.door import rotated_rows

SLACK = 16  # a full buffer grows by 1/SLACK
STEP = 4096  # rows that a buffer grows by at least


class Resident:
    """Rows on the model's device, in a buffer that grows.

    Args:
        form: of the rows.
        capacity: rows to have room for at first.
        most: rows that it may come to have room for; None: any number.

    Attributes:
        length: rows so far.
    """

    def __init__(self, form: RowForm, capacity: int = 0, most: int | None = None):
        self.form, self.length, self._most = form, 0, most
        self._buffer = form.empty(capacity, device=form.place.device)

    def fork(self) -> "Resident":
        """The same rows, to which others can be appended; only one fork is used at a time."""
        return copy.copy(self)  # what a fork appends comes after the rows of the original

    def append(self, new: Coded) -> None:
        """Adds rows."""
        count = len(new.rows)
        self._require(self.length + count)
        write(self._buffer, self.length, new)
        self.length += count

    def coded(self) -> Coded:
        """All rows as they are held."""
        return self._buffer.part(0, self.length)

    @property
    def buffer(self) -> Coded:
        """Them, and the room behind them."""
        return self._buffer

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) on the device, clamped to existing rows."""
        rows, scales = self.coded()
        return rotated_rows(rows, index, None, None, scales, self.form.place.dtype)

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` rows take."""
        return Held(tokens * self.form.bytes())

    def fill(self, rows: int) -> None:
        """As if that many random rows had been appended; for measurements."""
        self._require(rows)
        for x in self._buffer:
            if x is not None and x.is_floating_point():
                x[:rows].normal_()
            elif x is not None:
                x[:rows].random_(-127, 128)
        self.length = rows

    def _require(self, rows: int) -> None:
        capacity = len(self._buffer.rows)
        if rows > capacity:
            grown = max(rows, capacity + max(STEP, capacity // SLACK))
            grown = grown if self._most is None else min(grown, self._most)
            before = self.coded()
            self._buffer = self.form.empty(grown, device=self.form.place.device)
            write(self._buffer, 0, before)
