"""The tensors of files straight onto a GPU: several threads read, and the device copies meanwhile.

Each block is verified, on its way or when it is there. The parts go through buffers that the device
copies from by itself; they are made once in a process, because such memory takes longer to get than
to fill.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
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
    """All tensors of files on a device, by name; those of a file share their memory.

    Raises:
        StateMismatch: a file is not what was written.
    """
    images = [_Image(file, torch.device(device)) for file in files]
    in_threads([partial(image.bring, low) for image in images for low in image.parts()])
    return [image.rows() for image in images]


class _Image:
    """A file on a device, byte by byte.

    Args:
        file: the file.
        place: where.
    """

    def __init__(self, file: TensorFile, place: torch.device):
        self._file, self._place = file, place
        self._size, self._whole = file.shard.size, file.shard.size // shards.BLOCK
        # Where there is much, the device computes the checksums: several threads take as long for
        # them as for reading, and wait for the interpreter after each block.
        self._verified = self._size < MUCH
        self._shift = -file.data_start % ALIGNED
        memory = torch.empty(self._shift + self._size, dtype=torch.uint8, device=place)
        self._bytes = memory[self._shift :]
        self._stream = torch.cuda.current_stream(place) if place.type == "cuda" else None

    def parts(self) -> range:
        """Where the parts of the file begin."""
        return range(0, self._size, PART_BLOCKS * shards.BLOCK)

    def bring(self, low: int) -> None:
        """Brings the part from byte `low` on."""
        size = PART_BLOCKS * shards.BLOCK
        high = min(low + size, self._size)
        with _buffer(size, self._place.type == "cuda") as buffer:
            part = buffer.memory[: high - low]
            self._file.fill(low, part.numpy().data, self._verified)
            with torch.cuda.stream(self._stream) if self._stream else nullcontext():
                self._bytes[low:high].copy_(part, non_blocking=True)
                buffer.copied(self._place)

    def rows(self) -> Rows:
        """The tensors, once all parts have been brought."""
        if not self._verified:
            self._verify()
        return {name: self._tensor(slot) for name, slot in self._file.slots.items()}

    def _verify(self) -> None:
        found = block_checksums(self._bytes, 0, shards.BLOCK, self._whole).numpy()
        text = found.astype(">i8").tobytes().hex()
        sums = [text[at : at + 32] for at in range(0, len(text), 32)]
        for block in self._file.take_checksums(sums):
            # Damage is told here, unless it came on the way: what is read now is verified.
            first = block * shards.BLOCK
            data = self._file.read(first, shards.BLOCK)
            self._bytes[first : first + len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))

    def _tensor(self, slot: Slot) -> Tensor:
        """One tensor, as readers get it: narrower numbers are widened."""
        own = self._bytes[slot.start : slot.stop]
        if (self._shift + slot.start) % LEAST_ALIGNED:
            own = own.clone()  # kernels read vectors of so many bytes
        found = own.view(getattr(torch, slot.stored)).view(slot.shape)
        return found.to(getattr(torch, slot.dtype))
