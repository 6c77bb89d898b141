"""The reading loop: tokens run through the model once, chunk by chunk; rows go to the store.

It works the same for every method: it cuts chunks, runs them, and passes on what the method keeps.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from longctx.core.common.interrupts import check
from longctx.core.contracts.memory import Rows
from longctx.core.contracts.method import Method
from longctx.core.engine.chunk_graphs import ChunkReader
from longctx.core.model.adapter import Decoder


class RowSink(Protocol):
    """Where per-token rows go."""

    def append(self, group: str, rows: Rows) -> None:
        """Takes n more rows of a group of shards, on the model's device."""
        ...


def encode(
    decoder: Decoder,
    method: Method,
    prefix: Tensor,
    document: Iterable[Tensor],
    sink: RowSink,
    before: Callable[[int | None], None] = lambda end: None,
    during: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[int]:
    """Reads [prefix | document] in chunks of `method.chunk` tokens, asked before each.

    To resume from a snapshot, taken at a chunk's end, pass the restored method, an empty prefix
    and the rest of the document.

    Args:
        decoder: the model.
        method: a fresh method; afterwards it holds what its snapshot will save.
        prefix: (P,) token ids before the document.
        document: the document's token ids in pieces of any size.
        sink: gets the method's rows, one for each document token and none for the prefix.
        before: called before each chunk is read, with the number of document tokens up to its end;
            None where the chunk is not full.
        during: a context in which each chunk runs through the model; no row is passed on in it.

    Yields:
        After each full chunk, how many document tokens were read; the method can be saved then.
    """
    read = -len(prefix)
    reader = ChunkReader(decoder, method)
    for chunk in chunks(prefix, document, lambda: method.chunk):
        check()
        size = method.chunk
        before(max(0, read + len(chunk)) if len(chunk) == size else None)
        with during():
            reader.read(chunk)
        # Rows of the prefix do not belong to the document.
        for group, rows in reader.rows(skip=min(len(chunk), max(0, -read))).items():
            sink.append(group, rows)
        read += len(chunk)
        if len(chunk) == size:
            yield max(0, read)


def chunks(prefix: Tensor, document: Iterable[Tensor], size: Callable[[], int]) -> Iterator[Tensor]:
    """Cuts [prefix | document] into tensors of exactly `size()` tokens; the last may be shorter.

    Args:
        prefix, document: token ids.
        size: called before each.
    """
    waiting, count = [prefix], len(prefix)
    for piece in document:
        waiting.append(piece)
        count += len(piece)
        if count >= size():
            joined = torch.cat(waiting)
            while len(joined) >= (whole := size()):
                yield joined[:whole]
                joined = joined[whole:]
            waiting, count = [joined.clone()], len(joined)
    if count:
        yield torch.cat(waiting)
