"""Pinned host memory that a GPU reads and writes while it computes.

Pinning is slow, so another thread makes blocks ahead; copies run on their own stream. If the model
computes on the CPU, it is all ordinary memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from longctx.core.kv.coded import Coded, RowForm, pairs

ROWS = 8192  # of a block


class HostMemory:
    """Blocks of memory beside a device.

    Args:
        device: where the model computes.
        ahead: blocks that are made before they are needed: all layers need a new one at once.
        rows: of a block.

    Attributes:
        ahead, rows: as above.
    """

    def __init__(self, device: str, ahead: int = 1, rows: int = ROWS):
        self.ahead, self.rows = ahead, rows
        self._device, self._pinned = device, device.startswith("cuda")
        self._ready: dict[RowForm, deque[Future[Coded]]] = {}
        self._pool = ThreadPoolExecutor(1, "longctx-pinning") if self._pinned else None
        self._stream = torch.cuda.Stream(device) if self._pinned else None
        self._copied: torch.cuda.Event | None = None

    def block(self, form: RowForm) -> Coded:
        """Room for `rows` rows."""
        if not self._pool:
            return form.empty(self.rows)
        ready = self._ready.setdefault(form, deque())
        while len(ready) <= self.ahead:
            ready.append(self._pool.submit(form.empty, self.rows, pin_memory=True))
        return ready.popleft().result()

    def block_bytes(self, form: RowForm) -> int:
        """Bytes that a block takes; pinned memory comes in powers of two."""
        if not self._pinned:
            return self.rows * form.bytes()
        return sum(
            1 << (x.nbytes - 1).bit_length()
            for x in form.empty(self.rows, device="meta")
            if x is not None
        )

    def ahead_bytes(self, forms: Iterable[RowForm]) -> int:
        """Bytes of the blocks of these forms that are made ahead."""
        return sum(self.ahead * self.block_bytes(form) for form in forms) if self._pinned else 0

    def copy(self, target: Coded, source: Coded) -> None:
        """Starts copying rows from the device: `wait` before they are read or overwritten."""
        if not self._stream:
            for into, rows in pairs(target, source):
                into.copy_(rows)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for into, rows in pairs(target, source):
                into.copy_(rows, non_blocking=True)
                rows.record_stream(self._stream)
            self._copied = torch.cuda.Event()
            self._copied.record(self._stream)

    def wait(self) -> None:
        """Makes later work on the device wait for the copies so far."""
        if self._copied:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def brought(self, blocks: Iterable[tuple[int, Coded]]) -> Iterator[tuple[int, Coded]]:
        """Brings rows in host memory to the device, one block after another.

        While one is used, the next one is copied; at most these two are on the device.
        """
        if not self._stream:
            yield from blocks
            return
        on_its_way: deque[tuple[int, Coded, torch.cuda.Event]] = deque()
        for first, block in blocks:
            on_its_way.append((first, *self._bring(block, self._stream)))
            if len(on_its_way) == 2:
                yield self._arrived(*on_its_way.popleft())
        for waiting in on_its_way:
            yield self._arrived(*waiting)

    def _bring(self, block: Coded, stream: torch.cuda.Stream) -> tuple[Coded, torch.cuda.Event]:
        # Waits until the device is done with the block before the last, whose memory this one gets.
        stream.wait_stream(torch.cuda.current_stream(self._device))
        arrived = torch.cuda.Event()
        with torch.cuda.stream(stream):
            brought = block.each(lambda x: x.to(self._device, non_blocking=True))
            arrived.record(stream)
        return brought, arrived

    def _arrived(self, first: int, block: Coded, event: torch.cuda.Event) -> tuple[int, Coded]:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for x in block:
            if x is not None:
                x.record_stream(current)
        return first, block
