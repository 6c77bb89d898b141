"""Rows of a document on disk that stay on the device once they were needed.

There is room for all of them; which are there, the device knows.
"""

import copy

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held
from longctx.core.kv.coded import Coded, RowForm, pairs, write
from longctx.core.kv.on_disk import StoredRows
from longctx.core.kv.placed import Placed, Spot
from longctx.core.kv.resident import Resident


class Brought:
    """Rows of a document on disk, each read when it is first needed, and later ones.

    Args:
        form: of the rows.
        rows: on disk.
        spare: rows to have room for behind them.
    """

    def __init__(self, form: RowForm, rows: StoredRows, spare: int):
        self.form, self._stored, end = form, rows, rows.end
        self._rows = Resident(form, end + spare)
        write(self._rows.buffer.cleared(), 0, rows.before)  # what is missing counts as zero
        self._rows.length = end
        self._here = torch.ones(end + spare, dtype=torch.bool, device=form.place.device)
        self._here[rows.first : end] = False

    @property
    def length(self) -> int:
        """Rows so far."""
        return self._rows.length

    @property
    def buffer(self) -> Coded:
        """All rows, zero where they are missing, and the room behind them."""
        return self._rows.buffer

    def count(self, rows: int) -> None:
        """There are so many rows in the buffer now."""
        self._rows.length = rows

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` rows take."""
        return self._rows.held_bytes(tokens)

    def fork(self) -> "Brought":
        """The same rows, to which others can be appended; only one fork is used at a time."""
        fork = copy.copy(self)  # what one brings is there for all
        fork._rows = self._rows.fork()
        return fork

    def append(self, new: Coded) -> None:
        """Adds rows."""
        self._rows.append(new)
        more = len(self.buffer.rows) - len(self._here)
        if more > 0:
            self._here = torch.cat([self._here, self._here.new_ones(more)])

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) ascending, clamped to existing rows.

        Waits for the device.
        """
        wanted = index.clamp(max=self.length - 1)
        missing = wanted[~self._here[wanted]].cpu()
        if len(missing):
            self.put(missing, self.read(missing))
        return self._rows.gather(wanted)

    def read(self, rows: Tensor) -> Coded:
        """Stored rows at `rows` (S,) ascending, on the CPU as they are stored."""
        return self._stored.read(rows)

    def put(self, rows: Tensor, found: Coded) -> None:
        """Puts what was read at `rows` (S,) in its place."""
        device = self.form.place.device
        at = rows.to(device)
        for into, new in pairs(self.buffer, found):
            into.index_copy_(0, at, new.to(device).to(into.dtype))
        self._here[at] = True

    def placed(self, buffer: Coded, spot: Spot) -> "Awaited":
        """The same for one token, which is put where only the device knows."""
        return Awaited(self.form, buffer, spot, self._here)


class Awaited(Placed):
    """Rows of one layer, of which some may be missing; see `Brought`.

    Args:
        form, buffer, spot: see `Placed`.
        here: (n,) bool on the device, which rows are there.

    Attributes:
        gathered: the rows gathered last (S,), int64, and which of them were missing (S,), bool.
    """

    gathered: tuple[Tensor, Tensor] | None = None

    def __init__(self, form: RowForm, buffer: Coded, spot: Spot, here: Tensor):
        super().__init__(form, buffer, spot)
        self._here = here

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded, zero where they are missing; see `Placed.gather`."""
        self.gathered = index, ~self._here[index]
        return super().gather(index)
