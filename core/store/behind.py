"""A writer that works in another thread while the caller computes the next chunk.

It makes the same calls to `Writer` in the same order, so the files are the same. Rows are copied
from the device without making the caller wait.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from longctx.core.common.background import Behind
from longctx.core.store.shards import Rows
from longctx.core.store.writer import Writer

if TYPE_CHECKING:
    import torch

DEPTH = 4  # calls that may be queued: the rows, tokens and text of a chunk, and the next one's rows
ROOM = 256 << 20  # bytes of rows up to which more may be: writing a checkpoint takes seconds


class WriterBehind(Behind):
    """Writes one document while its context lasts; see `Writer` for each call.

    Args:
        writer: does the work.
        device: where the model computes. On a CPU no thread is used: it would take one of the
            cores that the model's operations are spread over, and all of them wait for the
            slowest.
        devices: over which layers are split, if they are: as many chunks more are on their way.

    Attributes:
        writer: the same; for calls made through `do`, and for those after the context.
        beside: whether another thread is used.
    """

    def __init__(self, writer: Writer, device: str, devices: int = 0):
        self.beside = device != "cpu"
        super().__init__(DEPTH * (1 + devices) if self.beside else 0, ROOM)
        self.writer = writer
        if self.beside:
            writer.work_beside()

    def begin_source(self, *args: Any) -> None:
        """Starts the next source."""
        self.do(self.writer.begin_source, *args)

    def add_bytes(self, data: bytes) -> None:
        """Appends raw bytes of the open source."""
        self.do_holding(len(data), partial(self.writer.add_bytes, data))

    def end_source(self, *args: Any) -> None:
        """Closes the open source."""
        self.do(self.writer.end_source, *args)

    def append(self, group: str, rows: Rows) -> None:
        """Appends rows to a group; nobody may change them afterwards."""
        rows, arrive = to_host(rows, still=True)

        def write() -> None:
            arrive()
            self.writer.append(group, rows)

        self.do_holding(sum(tensor.nbytes for tensor in rows.values()), write)


def to_host(rows: Rows, still: bool = False) -> tuple[Rows, Callable[[], object]]:
    """Starts copying rows to the CPU.

    Args:
        rows: tensors on any device.
        still: nothing changes them afterwards, so the device goes on computing meanwhile.

    Returns:
        The copies, and a callable that waits for them; call it before using them.
    """
    devices = {tensor.device for tensor in rows.values() if tensor.is_cuda}
    if not devices:
        return {name: tensor.cpu() for name, tensor in rows.items()}, lambda: None
    # The copies are in pinned memory, which the device fills by itself.
    streams = {device: _copying(device, still) for device in devices}
    copies = {name: _copied(tensor, streams.get(tensor.device)) for name, tensor in rows.items()}
    copied = [stream.record_event() for stream in streams.values()]
    return copies, lambda: [event.synchronize() for event in copied]


def _copied(tensor: "torch.Tensor", stream: "torch.cuda.Stream | None") -> "torch.Tensor":
    import torch

    if stream is None:
        return tensor.cpu()
    with torch.cuda.stream(stream):
        tensor.record_stream(stream)  # its memory is not given away before it is copied
        return tensor.to("cpu", non_blocking=True)


def _copying(device: "torch.device", still: bool) -> "torch.cuda.Stream":
    """The stream in which copies from a device are made, after what it computes now."""
    import torch

    computing = torch.cuda.current_stream(device)
    if not still:
        return computing
    stream = _aside(device)
    stream.wait_stream(computing)
    return stream


@cache
def _aside(device: "torch.device") -> "torch.cuda.Stream":
    import torch

    return torch.cuda.Stream(device)
