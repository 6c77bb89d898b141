"""A writer that works in another thread while the caller computes the next chunk.

It makes the same calls to `Writer` in the same order, so the files are the same. Rows are copied
from the device without making the caller wait.
"""

from collections.abc import Callable
from typing import Any

from longctx.core.common.background import Behind
from longctx.core.store.shards import Rows
from longctx.core.store.writer import Writer

DEPTH = 4  # calls that may be queued: the rows, tokens and text of a chunk, and the next one's rows


class WriterBehind(Behind):
    """Writes one document while its context lasts; see `Writer` for each call.

    Args:
        writer: does the work.
        device: where the model computes. On a CPU no thread is used: it would take one of the
            cores that the model's operations are spread over, and all of them wait for the
            slowest.

    Attributes:
        writer: the same; for calls made through `do`, and for those after the context.
        beside: whether another thread is used.
    """

    def __init__(self, writer: Writer, device: str):
        self.beside = device != "cpu"
        super().__init__(DEPTH if self.beside else 0)
        self.writer = writer
        if self.beside:
            writer.work_beside()

    def begin_source(self, *args: Any) -> None:
        """Starts the next source."""
        self.do(self.writer.begin_source, *args)

    def add_bytes(self, data: bytes) -> None:
        """Appends raw bytes of the open source."""
        self.do(self.writer.add_bytes, data)

    def end_source(self, *args: Any) -> None:
        """Closes the open source."""
        self.do(self.writer.end_source, *args)

    def append(self, group: str, rows: Rows) -> None:
        """Appends rows to a group; nobody may change them afterwards."""
        rows, arrive = to_host(rows)

        def write() -> None:
            arrive()
            self.writer.append(group, rows)

        self.do(write)


def to_host(rows: Rows) -> tuple[Rows, Callable[[], object]]:
    """Starts copying rows to the CPU.

    Returns:
        The copies, and a callable that waits for them; call it before using them.
    """
    import torch

    devices = {tensor.device for tensor in rows.values() if tensor.is_cuda}
    if not devices:
        return {name: tensor.cpu() for name, tensor in rows.items()}, lambda: None
    # The copies are in pinned memory, which the device fills by itself.
    copies = {name: tensor.to("cpu", non_blocking=True) for name, tensor in rows.items()}
    copied = [torch.cuda.current_stream(device).record_event() for device in devices]
    return copies, lambda: [event.synchronize() for event in copied]
