"""The tensors of files straight onto a GPU: several threads read, and the device copies meanwhile.

Each block is verified, on its way or when it is there. The parts go through buffers that the device
copies from by itself; they are made once in a process, because such memory takes longer to get than
to fill.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from itertools import islice
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from longctx.core.store import shards
from longctx.core.store.open_files import THREADS, in_threads
from longctx.core.store.shard_reader import Slot, TensorFile
from longctx.core.store.shards import Rows
from longctx.kernels.door import block_checksums

PART_BLOCKS = 8  # of a file, in one buffer: less, and threads wait for the interpreter
MUCH = 16 << 20  # bytes of a file whose checksums the device computes
ALIGNED, LEAST_ALIGNED = 256, 16  # bytes: where the first tensor begins, and any


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
    """All tensors of files on a device, by name; all share their memory.

    Raises:
        StateMismatch: a file is not what was written.
    """
    place, size = torch.device(device), 0
    starts = []  # of the files, so that the first tensor of each is aligned
    for file in files:
        starts.append(size + -(size + file.data_start) % ALIGNED)
        size = starts[-1] + file.shard.size
    memory = torch.empty(size, dtype=torch.uint8, device=place)
    pairs = zip(files, starts, strict=True)
    images = [_Image(file, memory, start) for file, start in pairs]
    in_threads([partial(image.bring, low) for image in images for low in image.parts()])
    _verify(memory, [image for image in images if not image.verified])
    return [image.rows() for image in images]


class _Image:
    """A file on a device, byte by byte.

    Args:
        file: the file.
        memory: (n,) uint8 on the device, of several files.
        start: where this one begins in it.

    Attributes:
        verified: each block is, on its way. The device does it where there is much: several threads
            take as long for checksums as for reading, and wait for the interpreter after each.
    """

    def __init__(self, file: TensorFile, memory: Tensor, start: int):
        self.verified = file.shard.size < MUCH
        self._file, self._start, self._size = file, start, file.shard.size
        self._bytes, self._place = memory[start : start + self._size], memory.device
        cuda = self._place.type == "cuda"
        self._stream = torch.cuda.current_stream(self._place) if cuda else None

    def parts(self) -> range:
        """Where the parts of the file begin."""
        return range(0, self._size, PART_BLOCKS * shards.BLOCK)

    def bring(self, low: int) -> None:
        """Brings the part from byte `low` on."""
        size = PART_BLOCKS * shards.BLOCK
        high = min(low + size, self._size)
        with _buffer(size, self._place.type == "cuda") as buffer:
            part = buffer.memory[: high - low]
            self._file.fill(low, part.numpy().data, self.verified)
            with torch.cuda.stream(self._stream) if self._stream else nullcontext():
                self._bytes[low:high].copy_(part, non_blocking=True)
                buffer.copied(self._place)

    def blocks(self) -> range:
        """Where its whole blocks begin in the memory."""
        whole = self._size // shards.BLOCK * shards.BLOCK
        return range(self._start, self._start + whole, shards.BLOCK)

    def take_checksums(self, sums: list[str]) -> None:
        """Takes those of the whole blocks, as they are on the device."""
        for block in self._file.take_checksums(sums):
            # Damage is told here, unless it came on the way: what is read now is verified.
            first = block * shards.BLOCK
            data = self._file.read(first, shards.BLOCK)
            self._bytes[first : first + len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))

    def rows(self) -> Rows:
        """The tensors, all of whose bytes are there."""
        return {name: self._tensor(slot) for name, slot in self._file.slots.items()}

    def _tensor(self, slot: Slot) -> Tensor:
        """One tensor, as readers get it: narrower numbers are widened."""
        own = self._bytes[slot.start : slot.stop]
        if (self._start + slot.start) % LEAST_ALIGNED:
            own = own.clone()  # kernels read vectors of so many bytes
        found = own.view(getattr(torch, slot.stored)).view(slot.shape)
        return found.to(getattr(torch, slot.dtype))


def _verify(memory: Tensor, images: list[_Image]) -> None:
    """Verifies files that are on a device, all in one pass: one block takes as long as all."""
    starts = [start for image in images for start in image.blocks()]
    if not starts:
        return
    found = block_checksums(memory, starts, shards.BLOCK).numpy()
    text = found.astype(">i8").tobytes().hex()
    sums = iter([text[at : at + 32] for at in range(0, len(text), 32)])
    for image in images:
        image.take_checksums([*islice(sums, len(image.blocks()))])
