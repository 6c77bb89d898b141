"""Rows of a document on disk, read on demand; later ones are on the device."""

import copy

import torch
from torch import Tensor

from longctx.core.contracts.memory import Held, Stored
from longctx.core.kv.coded import Coded, RowForm
from longctx.core.kv.resident import Resident


class OnDisk:
    """Rows of a document on disk, read when they are needed, and later ones on the device.

    Args:
        form: of the rows.
        before: rows of the prefix, which are not stored.
        stored, group, names: where the rows, and for int8 their scales, are stored.
        count: how many rows are stored.
    """

    def __init__(
        self,
        form: RowForm,
        before: Coded,
        stored: Stored,
        group: str,
        names: tuple[str, ...],
        count: int,
    ):
        self.form, self._before = form, before
        self._stored, self._group, self._names = stored, group, names
        self._end = len(before.rows) + count
        self._own = Resident(form)
        nothing = form.place.put(torch.zeros(0, dtype=torch.int64))
        self._last = nothing, form.place.put(before.part(0, 0).decoded(form.place.dtype))

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
        rows = self._stored.take(self._group, stored - P, self._names)
        taken = Coded(*(rows[name] for name in self._names))
        # Decoded there: int8 rows are half as large on their way, and a GPU multiplies faster.
        parts = [
            part.each(lambda x: x.to(place.device)).decoded(place.dtype)
            for part in (self._before.at(early), taken)
            if len(part.rows)
        ]
        if len(own):
            parts.append(self._own.gather(own.to(place.device) - self._end))
        return torch.cat(parts)
