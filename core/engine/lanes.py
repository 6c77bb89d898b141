"""Side streams of GPUs: what moves between devices holds up nothing that they compute.

A copy from one GPU to another waits for both of their current streams, and these for it. On streams
of its own it waits for what it copies alone, and only what uses the copy waits for it. Devices that
are no GPUs need nothing of this.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

Mark = torch.cuda.Event | None
OUT, IN, ROWS = range(3)  # what a stream is for


class Lanes:
    """Streams of some devices.

    Args:
        devices: their names, GPUs or others.
    """

    def __init__(self, devices: Iterable[str]):
        places = {torch.device(name) for name in devices if name.startswith("cuda")}
        self._streams = {place: [torch.cuda.Stream(place) for _ in range(3)] for place in places}

    def mark(self, device: str) -> Mark:
        """What this thread has had a device compute so far."""
        place = torch.device(device)
        return torch.cuda.current_stream(place).record_event() if place in self._streams else None

    def send(self, tensor: Tensor, device: str) -> tuple[Tensor, Mark]:
        """A tensor on another device, and when it has arrived; see `receive`."""
        here, there = tensor.device, torch.device(device)
        if here == there or not {here, there} <= self._streams.keys():
            return tensor.to(device), None
        begin, out, into = self.mark(str(here)), self._streams[here][OUT], self._streams[there][IN]
        with torch.cuda.stream(out), torch.cuda.stream(into):
            if begin is not None:
                out.wait_event(begin)
            sent = tensor.to(there, non_blocking=True)  # on `out`, which `into` waits for
            tensor.record_stream(out)  # its memory is not given away before
            return sent, into.record_event()

    def receive(self, tensor: Tensor, arrived: Mark) -> Tensor:
        """The tensor that was sent; what the device computes from now on waits for it."""
        if arrived is not None:
            stream = torch.cuda.current_stream(tensor.device)
            stream.wait_event(arrived)
            tensor.record_stream(stream)
        return tensor

    @contextmanager
    def beside(self, marks: Iterable[Mark]) -> Iterator[None]:
        """Inside, all devices work beside what they compute, after what was marked."""
        with ExitStack() as stack:
            waited = [mark for mark in marks if mark is not None]
            for streams in self._streams.values():
                stack.enter_context(torch.cuda.stream(streams[ROWS]))
                for mark in waited:
                    streams[ROWS].wait_event(mark)
            yield
