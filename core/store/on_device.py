"""The tensors of files straight onto a GPU: several threads read, and the device copies meanwhile.

Each block is verified on its way. The parts go through buffers that the device copies from by
itself; they are made once in a process, because such memory takes longer to get than to fill.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from itertools import islice
from operator import itemgetter
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from longctx.core.store import shards
from longctx.core.store.open_files import THREADS, in_threads
from longctx.core.store.shard_reader import TensorFile
from longctx.core.store.shards import Rows

PART_BLOCKS = 8  # of a file, in one buffer: less, and threads wait for the interpreter


class _Buffer:
    """Memory that a device copies from.

    Args:
        memory: (size,) uint8, pinned for a GPU.
    """

    def __init__(self, memory: Tensor):
        self.memory = memory
        self._read: Any = None  # torch has two types of events

    def wait(self) -> None:
        """Until nothing reads it."""
        if self._read is not None:
            self._read.synchronize()

    def copied(self, device: torch.device) -> None:
        """Copies from it to a device have been queued in this thread's stream."""
        if device.type == "cuda":
            self._read = torch.cuda.current_stream(device).record_event()


class _Target(NamedTuple):
    """Where bytes [start, stop) of a file belong: (stop - start,) uint8 on the device."""

    start: int
    stop: int
    bytes: Tensor


@cache
def _buffers(size: int, pinned: bool) -> SimpleQueue[_Buffer]:
    """Those of the process: one for each thread."""
    memory = torch.empty(THREADS * size, dtype=torch.uint8, pin_memory=pinned)
    found: SimpleQueue[_Buffer] = SimpleQueue()
    for part in memory.split(size):
        found.put(_Buffer(part))
    return found


@contextmanager
def _buffer(size: int, pinned: bool) -> Iterator[_Buffer]:
    """One that nobody uses."""
    free = _buffers(size, pinned)
    found = free.get()
    try:
        found.wait()
        yield found
    finally:
        free.put(found)


def on_device(files: Sequence[TensorFile], device: str) -> list[Rows]:
    """All tensors of files on a device, by name.

    Raises:
        StateMismatch: a file is not what was written.
    """
    place, size = torch.device(device), PART_BLOCKS * shards.BLOCK
    stream = torch.cuda.current_stream(place) if place.type == "cuda" else None
    found, parts = [], []
    for file in files:
        rows = {
            name: torch.empty(slot.shape, dtype=getattr(torch, slot.stored), device=place)
            for name, slot in file.slots.items()
        }
        targets = sorted(
            (
                _Target(slot.start, slot.stop, rows[name].reshape(-1).view(torch.uint8))
                for name, slot in file.slots.items()
            ),
            key=itemgetter(0),
        )
        bring = partial(_bring, file, targets, place, stream)
        parts += [partial(bring, low) for low in range(0, file.shard.size, size)]
        found.append(rows)
    in_threads(parts)
    return [_widened(file, rows) for file, rows in zip(files, found, strict=True)]


def _bring(
    file: TensorFile, targets: list[_Target], place: torch.device, stream: Any, low: int
) -> None:
    """Copies the part of a file from byte `low` on to where its bytes belong."""
    size = PART_BLOCKS * shards.BLOCK
    high = min(low + size, file.shard.size)
    with _buffer(size, place.type == "cuda") as buffer:
        part = buffer.memory[: high - low]
        file.fill(low, part.numpy().data, PART_BLOCKS)
        with torch.cuda.stream(stream) if stream else nullcontext():
            for target, first, last in _overlapping(targets, low, high):
                source = part[first - low : last - low]
                there = target.bytes[first - target.start : last - target.start]
                there.copy_(source, non_blocking=True)
            buffer.copied(place)


def _overlapping(targets: list[_Target], low: int, high: int) -> Iterator[tuple[_Target, int, int]]:
    """Targets, in order, that have bytes of [low, high), and which ones.

    Only these are looked at: all threads wait for whoever holds the interpreter.
    """
    begin = bisect_right(targets, low, key=itemgetter(1))  # the first that ends behind `low`
    for target in islice(targets, begin, None):
        if target.start >= high:
            return
        if target.start < target.stop:
            yield target, max(target.start, low), min(target.stop, high)


def _widened(file: TensorFile, rows: Rows) -> Rows:
    """Numbers that are stored narrower, as readers get them."""
    return {name: rows[name].to(getattr(torch, slot.dtype)) for name, slot in file.slots.items()}
