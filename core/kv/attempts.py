"""Tokens of an answer that are read with what is on the device, and again if something was missing.

So a layer can be recorded, although the host must bring what it lacks. Several can be recorded as
one: up to the first that lacked something, an attempt is right; what later ones seem to lack is
mostly what they will, and is brought at the same time. The last attempt lacks nothing.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from longctx.core.contracts import memory as contract
from longctx.core.contracts.memory import Memory
from longctx.core.kv.brought import Awaited, Brought
from longctx.core.kv.coded import Coded
from longctx.core.kv.scanned import Scanned
from longctx.core.model.adapter import Layer
from longctx.core.store.open_files import in_threads


class Tried(Memory, Protocol):
    """A method's memory of a question, as attempts need it."""

    def trying(self, kept: Scanned) -> Memory:
        """The same for one attempt at some layers, with counts of its own."""
        ...

    def keep(self, tried: Sequence[Any]) -> None:
        """Keeps a token, and what the attempts at its layers counted, which `trying` gave."""
        ...


class Attempts(contract.Attempts):
    """See there.

    Args:
        memory: of a question that was read.
        kept: what it keeps, all layers on one device with room; see `Scanned.buffers`.
    """

    def __init__(self, memory: Tried, kept: Scanned):
        self._memory, self._kept = memory, kept
        self._buffers = kept.buffers()
        with torch.inference_mode(False):  # it is changed in any mode
            self._seen = torch.tensor(kept.seen, device=self._buffers[0].device)

    def ready(self) -> bool:
        """See `Attempts.ready` in the contract."""
        self._seen.fill_(self._kept.seen)
        return self._kept.has_room(1)

    def begin(self) -> "Attempt":
        """See `Attempts.begin` in the contract."""
        trying = self._kept.placing(self._buffers, self._seen)
        return Attempt(self._memory.trying(trying), self._kept, trying)

    def keep(self, attempts: Sequence[Any]) -> None:
        """See `Attempts.keep` in the contract."""
        self._memory.keep([attempt.tried for attempt in attempts])


class Attempt(contract.Attempt):
    """See there.

    Args:
        tried: the method's memory.
        kept: what it keeps.
        trying: the same, where one token is put by the device.

    Attributes:
        tried: as above.
    """

    def __init__(self, tried: Memory, kept: Scanned, trying: Scanned):
        self.tried, self._kept, self._trying = tried, kept, trying
        self._columns: list[Brought] = []  # that lacked something, perhaps

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Memory.attend`."""
        return self.tried.attend(layer, q, k, v)

    def end(self) -> None:
        """See `Attempt.end` in the contract."""
        found: list[tuple[Tensor, Tensor]] = []
        for there, here in zip(self._kept.layers(), self._trying.layers(), strict=True):
            column, own = there.values, here.values
            if isinstance(column, Brought) and isinstance(own, Awaited) and own.gathered:
                self._columns.append(column)
                found.append(own.gathered)
        if found:
            self._wanted, self._absent = (torch.stack(each) for each in zip(*found, strict=True))
            self._lacks = self._absent.any()

    def lacked(self) -> bool:
        """See `Attempt.lacked` in the contract."""
        if not self._columns or not bool(self._lacks):
            return False
        layers, places = self._absent.nonzero(as_tuple=True)
        layers, rows = torch.stack([layers, self._wanted[layers, places]]).cpu()
        parts = rows.split(layers.bincount(minlength=len(self._columns)).tolist())
        missing = [(c, part) for c, part in zip(self._columns, parts, strict=True) if len(part)]
        found: list[Coded | None] = [None for _ in missing]
        in_threads([partial(_read, *one, found, n) for n, one in enumerate(missing)])
        for (column, part), coded in zip(missing, found, strict=True):
            assert coded is not None
            column.put(part, coded)
        return True


def _read(column: Brought, rows: Tensor, found: list[Coded | None], number: int) -> None:
    found[number] = column.read(rows)
