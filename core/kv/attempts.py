"""Tokens of an answer that are read with what is on the device, and again if something was missing.

So the host need not learn in each layer what it must bring, and all layers can be recorded. Up to
the first layer that lacked something, an attempt is right; what later layers seem to lack is mostly
what they will, and is brought at the same time. The last attempt lacks nothing.
"""

from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from longctx.core.contracts.memory import Attempt, Memory
from longctx.core.kv.brought import Awaited, Brought
from longctx.core.kv.coded import Coded
from longctx.core.kv.scanned import Scanned
from longctx.core.model.adapter import Layer
from longctx.core.store.open_files import in_threads


class Tried(Memory, Protocol):
    """A method's memory of a question, as attempts need it."""

    def trying(self, kept: Scanned) -> Memory:
        """The same for one attempt, with counts of its own."""
        ...

    def keep(self, tried: Any) -> None:
        """Keeps the token of an attempt, which `trying` gave."""
        ...


class Attempts(Attempt):
    """See `Attempt` in `core/contracts/memory.py`.

    Args:
        memory: of a question that was read.
        kept: what it keeps, all layers on one device with room; see `Scanned.buffers`.
    """

    def __init__(self, memory: Tried, kept: Scanned):
        self._memory, self._kept = memory, kept
        self._buffers = kept.buffers()
        with torch.inference_mode(False):  # it is changed in any mode
            self._seen = torch.tensor(kept.seen, device=self._buffers[0].device)
        self._columns = [kv.values for kv in kept.layers() if isinstance(kv.values, Brought)]

    def ready(self) -> bool:
        """See `Attempt.ready`."""
        self._seen.fill_(self._kept.seen)
        return self._kept.has_room(1)

    def begin(self) -> None:
        """See `Attempt.begin`."""
        self._trying = self._kept.placing(self._buffers, self._seen)
        self._tried = self._memory.trying(self._trying)

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Memory.attend`."""
        return self._tried.attend(layer, q, k, v)

    def end(self) -> None:
        """See `Attempt.end`."""
        awaited = [kv.values for kv in self._trying.layers() if isinstance(kv.values, Awaited)]
        if awaited:
            self._wanted = torch.stack([column.wanted for column in awaited])
            self._absent = torch.stack([column.absent for column in awaited])
            self._lacks = self._absent.any()

    def lacked(self) -> bool:
        """See `Attempt.lacked`."""
        if not self._columns or not bool(self._lacks):
            return False
        layers, places = self._absent.nonzero(as_tuple=True)
        layers, rows = torch.stack([layers, self._wanted[layers, places]]).cpu()
        parts = rows.split(layers.bincount(minlength=len(self._columns)).tolist())
        found: dict[int, tuple[Tensor, Coded]] = {}
        in_threads([partial(self._read, n, part, found) for n, part in enumerate(parts)])
        for number, read in found.items():
            self._columns[number].put(*read)
        return True

    def _read(self, number: int, rows: Tensor, found: dict[int, tuple[Tensor, Coded]]) -> None:
        if len(rows):
            found[number] = self._columns[number].read(rows)

    def keep(self) -> None:
        """See `Attempt.keep`."""
        self._memory.keep(self._tried)
