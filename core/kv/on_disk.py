"""Rows of a document on disk, read on demand; later ones are on the device."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held, Stored
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.resident import Resident


@dataclass(frozen=True)
class StoredRows:
    """Rows of a document on disk, behind those of the prefix, which are not stored.

    Attributes:
        before: rows of the prefix.
        stored, group, names: where the rows, and for int8 their scales, are stored.
        count: how many rows are stored.
    """

    before: Coded
    stored: Stored
    group: str
    names: tuple[str, ...]
    count: int

    @property
    def first(self) -> int:
        """The first row that is stored."""
        return len(self.before.rows)

    @property
    def end(self) -> int:
        """The number of rows, with those of the prefix."""
        return self.first + self.count

    def read(self, rows: Tensor) -> Coded:
        """Those at `rows` (S,) ascending, all of them stored, on the CPU as they are stored."""
        found = self.stored.take(self.group, rows - self.first, self.names)
        return Coded(*(found[name] for name in self.names))


class OnDisk:
    """Rows of a document on disk, read when they are needed, and later ones on the device.

    Args:
        form: of the rows.
        rows: on disk.
    """

    def __init__(self, form: RowForm, rows: StoredRows):
        self.form, self._stored = form, rows
        self._before, self._end = rows.before, rows.end
        self._own = Resident(form)
        nothing = form.place.put(torch.zeros(0, dtype=torch.int64))
        self._last = nothing, form.place.put(rows.before.part(0, 0).decoded(form.place.dtype))

    @property
    def length(self) -> int:
        """Rows so far."""
        return self._end + self._own.length

    def held_bytes(self, tokens: int) -> Held:
        """Memory that `tokens` rows take: only the latest take any."""
        return self._own.held_bytes(max(0, tokens - self._end))

    def fork(self) -> "OnDisk":
        """The same rows, to which others can be appended; only one fork is used at a time."""
        fork = copy.copy(self)
        fork._own = self._own.fork()
        return fork

    def append(self, new: Coded) -> None:
        """Adds rows; they stay in memory."""
        self._own.append(new)

    def gather(self, index: Tensor) -> Tensor:
        """Chosen rows (S, G, D), decoded; `index` (S,) ascending, clamped to existing rows.

        Waits for the device. Rows read by the previous call are not read again: a token attends to
        most of what the token before it did.
        """
        wanted = index.clamp(max=self.length - 1)
        known, rows = self._last
        place = torch.searchsorted(known, wanted).clamp_(max=max(0, len(known) - 1))
        new = known[place] != wanted if len(known) else torch.ones_like(wanted, dtype=torch.bool)
        missing = wanted[new].cpu()
        if len(missing):  # behind the known rows
            place = torch.where(new, new.cumsum(0) + (len(known) - 1), place)
            rows = torch.cat([rows, self._read(missing)])
        found = rows[place]
        self._last = wanted, found
        return found

    def _read(self, wanted: Tensor) -> Tensor:
        """Rows (S, G, D) at `wanted` (S,) on the CPU, ascending."""
        P, place = len(self._before.rows), self.form.place
        cuts = torch.searchsorted(wanted, torch.tensor([P, self._end])).tolist()
        early, stored, own = (part.clone() for part in wanted.tensor_split(cuts))
        taken = self._stored.read(stored)
        # Decoded there: int8 rows are half as large on their way, and a GPU multiplies faster.
        parts = [
            part.each(lambda x: x.to(place.device)).decoded(place.dtype)
            for part in (self._before.at(early), taken)
            if len(part.rows)
        ]
        if len(own):
            parts.append(self._own.gather(own.to(place.device) - self._end))
        return torch.cat(parts)
