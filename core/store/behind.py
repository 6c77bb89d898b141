"""A writer that works in the background: in another thread, while the caller computes what is next.

The calls are those of `Writer`, in the same order, so the files are the same. Rows are copied from
the device without making the caller wait.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from longctx.core.common.background import Behind
from longctx.core.store.boundary import Boundary
from longctx.core.store.shards import Rows
from longctx.core.store.word_files import MakeWords
from longctx.core.store.writer import Writer

if TYPE_CHECKING:
    from longctx.core.store.document import Document

DEPTH = 4  # calls that may wait: the rows, tokens and text of one chunk, and the next one's rows


class WriterBehind(Behind):
    """Writes one document while its context lasts; see `Writer` for each call.

    Args:
        writer: does the work; after the context the caller has it for himself again.
        device: where the model computes. On a CPU nothing is done beside it: another thread would
            take one of the cores that the model's operations are spread over, and all of them
            wait for the slowest.

    Attributes:
        beside: whether anything is done in another thread.
    """

    def __init__(self, writer: Writer, device: str):
        self.beside = device != "cpu"
        super().__init__(DEPTH if self.beside else 0)
        self._writer = writer
        if self.beside:
            writer.work_beside()

    @property
    def begun(self) -> "Document | None":
        """The checkpoint that the writer goes on from."""
        return self._writer.begun

    def begin_source(self, *args: Any) -> None:
        """Starts the next source."""
        self.do(self._writer.begin_source, *args)

    def add_bytes(self, data: bytes) -> None:
        """Appends raw bytes of the open source."""
        self.do(self._writer.add_bytes, data)

    def end_source(self, *args: Any) -> None:
        """Closes the open source."""
        self.do(self._writer.end_source, *args)

    def append(self, group: str, rows: Rows) -> None:
        """Appends rows to a group; nobody may change them afterwards."""
        rows, arrive = to_host(rows)

        def write() -> None:
            arrive()
            self._writer.append(group, rows)

        self.do(write)

    def checkpoint(self, snapshot: Rows, boundary: Boundary | None, **changes: Any) -> None:
        """Writes all that came so far, now: for a call that is made by `do`."""
        self._writer.checkpoint(snapshot, boundary, **changes)

    def growth(self, snapshot: Rows | None, boundary: Boundary | None) -> int:
        """Bytes that `complete` would add; after the context."""
        return self._writer.growth(snapshot, boundary)

    def complete(
        self,
        snapshot: Rows | None,
        boundary: Boundary | None,
        words: MakeWords | None,
        **changes: Any,
    ) -> None:
        """Writes the rest and gives the document its place; after the context."""
        self._writer.complete(snapshot, boundary, words, **changes)


def to_host(rows: Rows) -> tuple[Rows, Callable[[], object]]:
    """Begins to copy rows to the CPU.

    Returns:
        The copies, and what to call before they are used: it waits until they are there.
    """
    import torch

    devices = {tensor.device for tensor in rows.values() if tensor.is_cuda}
    if not devices:
        return {name: tensor.cpu() for name, tensor in rows.items()}, lambda: None
    # Such copies are in pinned memory, which the device fills by itself.
    copies = {name: tensor.to("cpu", non_blocking=True) for name, tensor in rows.items()}
    copied = [torch.cuda.current_stream(device).record_event() for device in devices]
    return copies, lambda: [event.synchronize() for event in copied]
