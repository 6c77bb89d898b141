"""Rows in pinned host memory; the latest stay on the device."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held
from longctx.core.kv.coded import Coded, RowForm, pairs
from longctx.core.kv.host_memory import HostMemory
from longctx.kernels.door import gather_rows

LEAVE = 2048  # rows that leave the device together


class Hosted:
    """Rows in host memory, except the latest, which stay on the model's device.

    Args:
        form: of the rows.
        keep: least number of latest rows that stay on the device.
        memory: gives blocks of host memory.

    Attributes:
        length: rows so far.
    """

    def __init__(self, form: RowForm, keep: int, memory: HostMemory):
        self.form, self.length = form, 0
        self._start = 0  # rows that have left the device
        self._keep, self._memory = keep, memory
        self._set_blocks([])
        self._set_tail(form.empty(0, device=form.place.device))

    def fork(self) -> "Hosted":
        """The same rows, to which others can be appended; only one fork is used at a time."""
        return copy.copy(self)  # lists and tensors are replaced; only entries after the rows change

    def append(self, new: Coded) -> None:
        """Adds rows; the earliest on the device leave it, some at a time."""
        joined = (torch.cat([old, x.to(old)]) for old, x in pairs(self._tail, new))
        decoded = [self._decoded, new.decoded(self._decoded.dtype).to(self._decoded.device)]
        self._set_tail(Coded(*joined), decoded)
        self.length += len(new.rows)
        leaving = self.length - self._start - self._keep
        if leaving >= LEAVE:
            self._leave(self._tail.part(0, leaving))
            self._set_tail(self._tail.part(leaving, leaving + self._keep).copied())

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) on the device, clamped to existing rows."""
        self._memory.wait()
        given = self._rows, self._row_table, self._decoded, self._start, index
        return gather_rows(*given, self._scales, self._scale_table)

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, Coded]]:
        """Rows [first, last) on the device, block by block: (first row, rows).

        Each block is copied while the one before it is used.
        """
        self._memory.wait()
        yield from self._memory.brought(self._parts(first, min(last, self._start)))
        low = max(first, self._start)
        if low < last:
            yield low, self._tail.part(low - self._start, last - self._start)

    def _parts(self, first: int, last: int) -> Iterator[tuple[int, Coded]]:
        size = self._memory.rows
        for number, block in enumerate(self._blocks):
            low, high = max(first, number * size), min(last, (number + 1) * size)
            if low < high:
                yield low, block.part(low - number * size, high - number * size)

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` rows take."""
        near = min(tokens, self._keep + LEAVE)
        blocks = -(-(tokens - near) // self._memory.rows)
        return Held(near * self.form.bytes(), blocks * self._memory.block_bytes(self.form))

    def fill(self, rows: int) -> None:
        """As if that many rows had been appended, the same few repeated; for measurements."""
        size, near = self._memory.rows, min(rows, self._keep)
        count = -(-rows // size)
        few = [self._memory.block(self.form).cleared() for _ in range(min(count, 4))]
        self._set_blocks([few[number % len(few)] for number in range(count)])
        self._set_tail(self.form.empty(near, device=self.form.place.device).cleared())
        self.length, self._start = rows, rows - near

    def _leave(self, rows: Coded) -> None:
        size, count, done = self._memory.rows, len(rows.rows), 0
        while done < count:
            number, at = divmod(self._start + done, size)
            if number == len(self._blocks):
                self._set_blocks([*self._blocks, self._memory.block(self.form)])
            step = min(count - done, size - at)
            target = self._blocks[number].part(at, at + step)
            self._memory.copy(target, rows.part(done, done + step))
            done += step
        self._start += count

    def _set_tail(self, tail: Coded, decoded: list[Tensor] | None = None) -> None:
        """Sets the rows on the device; int8 rows are decoded once, unless `decoded` gives parts."""
        self._tail = tail
        if tail.scales is None:
            self._decoded = tail.rows.to(self.form.place.dtype)
        elif decoded is None:
            self._decoded = tail.decoded(self.form.place.dtype)
        else:
            self._decoded = torch.cat(decoded)

    def _set_blocks(self, blocks: list[Coded]) -> None:
        """Sets the rows in host memory and the tables that locate them (int8: also the scales)."""
        self._blocks = blocks
        self._rows = [block.rows for block in blocks]
        self._row_table = self._table(self._rows)
        self._scales = self._scale_table = None
        if self.form.held == torch.int8:
            self._scales = [x for block in blocks if (x := block.scales) is not None]
            self._scale_table = self._table(self._scales)

    def _table(self, column: list[Tensor]) -> Tensor:
        table = torch.tensor([x.data_ptr() for x in column], dtype=torch.int64)
        return table.to(self.form.place.device, non_blocking=True)
