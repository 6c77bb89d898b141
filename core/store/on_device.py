"""The tensors of a file straight onto a GPU: while one part is copied there, the next is read.

Each block is verified on its way. The parts go through two buffers that the device copies from by
itself; they are made once in a process, because such memory takes longer to get than to fill.
"""

import threading
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from longctx.core.store import shards
from longctx.core.store.shard_reader import TensorFile
from longctx.core.store.shards import Rows

PART_BLOCKS = 64  # of a file, in one buffer
_turn = threading.Lock()  # the buffers are those of the process


class _Buffer:
    """Memory that a device copies from; one that it still reads is waited for.

    Args:
        size: bytes.
        pinned: for a GPU.
    """

    def __init__(self, size: int, pinned: bool):
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self._read: Any = None  # torch has two types of events

    def wait(self) -> None:
        """Until nothing reads it."""
        if self._read is not None:
            self._read.synchronize()

    def copied(self, device: torch.device) -> None:
        """Copies from it to a device have been queued."""
        if device.type == "cuda":
            self._read = torch.cuda.current_stream(device).record_event()


@cache
def _buffers(size: int, pinned: bool) -> Iterator[_Buffer]:
    """Two in turn, also from file to file: a small one is read while the last one is copied."""
    return cycle((_Buffer(size, pinned), _Buffer(size, pinned)))


def on_device(file: TensorFile, device: str) -> Rows:
    """All tensors of a file on a device, by name.

    Raises:
        StateMismatch: the file is not what was written.
    """
    place, found = torch.device(device), {}
    for name, slot in file.slots.items():
        found[name] = torch.empty(slot.shape, dtype=getattr(torch, slot.stored), device=place)
    spans = [
        (slot.start, slot.stop, found[name].reshape(-1).view(torch.uint8))
        for name, slot in file.slots.items()
    ]
    size = PART_BLOCKS * shards.BLOCK
    with _turn:
        buffers = _buffers(size, place.type == "cuda")
        for low in range(0, file.shard.size, size):
            buffer = next(buffers)
            buffer.wait()
            part = buffer.memory[: min(size, file.shard.size - low)]
            file.fill(low, part.numpy().data)
            for target, source in _pieces(spans, part, low):
                target.copy_(source, non_blocking=True)
            buffer.copied(place)  # who takes this buffer next waits for that
    dtypes = {name: getattr(torch, slot.dtype) for name, slot in file.slots.items()}
    return {name: tensor.to(dtypes[name]) for name, tensor in found.items()}


def _pieces(
    spans: list[tuple[int, int, Tensor]], part: Tensor, low: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of tensors with what belongs there, for the bytes of the file from `low` on."""
    for start, stop, target in spans:
        first, last = max(start, low), min(stop, low + len(part))
        if first < last:
            yield target[first - start : last - start], part[first - low : last - low]
