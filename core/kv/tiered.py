"""Rows in two places: as many as fit on the device, the rest in host memory."""

import copy
from typing import Self

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.host_memory import HostMemory
from longctx.core.kv.hosted import Hosted
from longctx.core.kv.resident import Resident


class Tiered:
    """Rows of which as many as fit are on the device, the rest in host memory.

    Args:
        form: of the rows.
        capacity: rows to have room for at first.
        limit: rows that may be on the device in addition to the latest; None: all.
        keep: latest rows that stay on the device.
        memory: gives blocks of host memory.
    """

    def __init__(
        self, form: RowForm, capacity: int, limit: int | None, keep: int, memory: HostMemory
    ):
        self.form, self._limit, self._memory = form, limit, memory
        first = capacity if limit is None else min(capacity, limit)
        self._near = Resident(form, first, limit)
        self._far = Hosted(form, keep, memory)  # empty without a limit

    @property
    def length(self) -> int:
        """Rows so far."""
        return self._near.length + self._far.length

    @property
    def resident(self) -> Coded | None:
        """All rows as they are held, if they are all in one buffer on the device; else None."""
        return self._near.coded() if self.length == self._near.length else None

    @property
    def buffer(self) -> Coded | None:
        """All rows on the device and the room behind them; None if some are elsewhere."""
        return self._near.buffer if self.length == self._near.length else None

    def count(self, rows: int) -> None:
        """There are so many rows in the buffer now."""
        self._near.length = rows

    def fork(self) -> Self:
        """The same rows, to which others can be appended; only one fork is used at a time."""
        fork = copy.copy(self)
        fork._near, fork._far = self._near.fork(), self._far.fork()
        return fork

    def append(self, new: Coded) -> None:
        """Adds rows."""
        count = len(new.rows)
        near = count if self._limit is None else min(count, self._limit - self._near.length)
        if near:
            self._near.append(new.part(0, near))
        if near < count:
            self._far.append(new.part(near, count))

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) on the device, clamped to existing rows."""
        near = self._near.length
        if self.length == near:
            return self._near.gather(index)
        if not near:
            return self._far.gather(index)
        here = index < near
        # In place of what is here, the last one, which is on the device too.
        far = self._far.gather(torch.where(here, self._far.length - 1, index - near))
        return torch.where(here[:, None, None], self._near.gather(index), far)

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` rows take."""
        near = tokens if self._limit is None else min(tokens, self._limit)
        held = self._near.held_bytes(near)
        if near == tokens:
            return held
        far = self._far.held_bytes(tokens - near)
        return Held(held.device + far.device, held.host + far.host)

    def fill(self, rows: int) -> None:
        """As if that many random rows had been appended; for measurements."""
        near = rows if self._limit is None else min(rows, self._limit)
        self._near.fill(near)
        if near < rows:
            self._far.fill(rows - near)
