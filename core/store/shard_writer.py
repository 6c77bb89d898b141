"""Writes the files of a document: rows and text arrive in pieces and leave as whole shards.

`docs/format.md` specifies the bytes. This module knows nothing of libraries, manifests or methods.
torch is imported only where tensors are handled, so that listing a library does not wait for it.
"""

import math
import struct
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from longctx.core.store import shards
from longctx.core.store.confined import Confined
from longctx.core.store.durable import write_file
from longctx.core.store.shards import ROWLESS, Rows, Shard, is_group, shard_name
from longctx.core.store.tensor_bytes import Parts, in_pieces

if TYPE_CHECKING:
    import numpy as np
    import torch

SHARD_ROWS = 1 << 16  # rows in one shard, unless they would pass SHARD_BYTES
SHARD_BYTES = 1 << 27  # bounds the memory that a group's buffer takes
WRITERS = 3  # shards written at once: while some are synced, others are copied to the page cache

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")  # deflate, no flags, no time, unknown system


def compress_member(data: bytes | bytearray) -> bytes:
    """`data` as one gzip member: level 6, no name, no time; equal text gives equal bytes."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data))


def write_tensors(folder: Confined, group: str, name: str, tensors: Rows) -> Shard:
    """Write one safetensors file.

    Args:
        folder: where to write.
        group: the group it belongs to; every group but ROWLESS has rows.
        name: the file name.
        tensors: on any device; rows all have the same first dimension.

    Raises:
        ValueError: a tensor has a type that the format does not.
        LongctxError: the file cannot be written.
    """
    parts = {
        key: (str(x.dtype).removeprefix("torch."), tuple(x.shape), _bytes_of(x))
        for key, x in tensors.items()
    }
    rows = 0 if group in ROWLESS else len(next(iter(tensors.values())))
    return _written(folder, group, name, rows, parts)


def write_arrays(
    folder: Confined, group: str, name: str, arrays: "Mapping[str, np.ndarray]"
) -> Shard:
    """Write one safetensors file of numpy arrays, of a group without rows; torch is not imported.

    Raises:
        ValueError: an array has a type that the format does not.
        LongctxError: the file cannot be written.
    """
    import numpy as np

    parts = {
        key: (
            array.dtype.name,
            array.shape,
            np.ascontiguousarray(array).reshape(-1).view("u1").data,
        )
        for key, array in arrays.items()
    }
    return _written(folder, group, name, 0, parts)


def _written(folder: Confined, group: str, name: str, rows: int, parts: Parts) -> Shard:
    """Writes one file of tensors."""
    try:
        pieces = in_pieces(parts)
    except ValueError as error:
        raise ValueError(f"{group}: {error}") from None
    size = sum(len(piece) for piece in pieces)
    blocks = write_file(folder, name, size, pieces)
    return Shard(name, group, rows, size, tuple(blocks))


def _bytes_of(tensor: "torch.Tensor") -> memoryview:
    """What a tensor on any device has, without a copy if it is contiguous on the host."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.stride() != (1,):  # a single number, or none, may have another stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().data


def narrowed(group: str, rows: Rows) -> Rows:
    """The rows of one file with narrower whole numbers where all of them fit (`NARROW`)."""
    import torch

    result = dict(rows)
    for name, tensor in rows.items():
        if narrow := shards.NARROW.get((group, name)):
            dtype = getattr(torch, narrow)
            fits = torch.iinfo(dtype)
            if not len(tensor) or (fits.min <= tensor.min() and tensor.max() <= fits.max):
                result[name] = tensor.to(dtype)
    return result


def rows_of_shard(width: int, most: int = SHARD_ROWS) -> int:
    """Rows of `width` bytes in a full shard: `most`, halved until they fit SHARD_BYTES."""
    while most > 1 and most * width > SHARD_BYTES:
        most //= 2
    return most


class GroupWriter:
    """Collects the rows of one group and writes a shard whenever one is full.

    Args:
        folder: where the shards go.
        group: the group's name.
        like: any rows of the group; they fix names, types and dimensions after the first.
        shard_rows: rows in a full shard; halved until a shard is at most SHARD_BYTES.
        full: shards that an earlier run wrote; they fix the rows of a shard.
    """

    def __init__(
        self, folder: Confined, group: str, like: Rows, shard_rows: int, full: Sequence[Shard] = ()
    ):
        import torch

        if not is_group(group):
            raise ValueError(f"{group!r} cannot be the name of a group")
        self._folder, self._group = folder, group
        width = sum(math.prod(t.shape[1:]) * t.element_size() for t in like.values())
        shard_rows = full[0].rows if full else rows_of_shard(width, shard_rows)
        self._buffer = {
            name: torch.empty((shard_rows, *tensor.shape[1:]), dtype=tensor.dtype)
            for name, tensor in like.items()
        }
        self._shard_rows, self._held = shard_rows, 0
        self._full = list(full)
        self._disk: ThreadPoolExecutor | None = None
        self._writing: deque[tuple[Future[Shard], Rows]] = deque()  # with their buffers, in order
        self._spares: list[Rows] = []  # buffers that have been written

    def work_beside(self) -> None:
        """Writes up to WRITERS full shards in other threads while the next one is collected.

        An error there is raised by the next call that needs the thread or the shard.
        """
        self._disk = ThreadPoolExecutor(WRITERS, "longctx-shards")

    @property
    def rows(self) -> int:
        """Rows appended so far."""
        return (len(self._full) + len(self._writing)) * self._shard_rows + self._held

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that are not in any file yet, a checkpoint's included."""
        return sum(tensor[: self._held].nbytes for tensor in self._buffer.values())

    def append(self, rows: Rows) -> None:
        """Copy `rows` (from any device) to the end; ValueError where they do not fit the group."""
        count = self._check(rows)
        done = 0
        while done < count:
            self._flush()
            step = min(count - done, self._shard_rows - self._held)
            for name, tensor in rows.items():
                new = tensor[done : done + step].detach()
                self._buffer[name][self._held : self._held + step] = new
            done, self._held = done + step, self._held + step
        self._flush()

    def shards(self, checkpoint: int | None) -> list[Shard]:
        """Every shard so far; leftover rows are written as a tail of `checkpoint`."""
        self.settle()
        if self._held or not self._full:
            held = {name: tensor[: self._held] for name, tensor in self._buffer.items()}
            return [*self._full, self._write(held, len(self._full), checkpoint)]
        return list(self._full)

    def settle(self) -> None:
        """Waits for the shards that are being written; LongctxError if that failed."""
        while self._writing:
            self._settle_first()

    def _settle_first(self) -> None:
        """Waits for the earliest of the shards that are being written."""
        writing, buffer = self._writing[0]
        self._full.append(writing.result())  # one that failed stays the first, and fails again
        self._spares.append(buffer)
        self._writing.popleft()

    def _flush(self) -> None:
        if self._held != self._shard_rows:
            return
        number = len(self._full) + len(self._writing)
        if self._disk:
            import torch

            while self._writing and (len(self._writing) == WRITERS or self._writing[0][0].done()):
                self._settle_first()
            full = self._buffer
            self._writing.append((self._disk.submit(self._write, full, number, None), full))
            self._buffer = (
                self._spares.pop()
                if self._spares
                else {name: torch.empty_like(x) for name, x in full.items()}
            )
        else:
            self._full.append(self._write(self._buffer, number, None))
        self._held = 0

    def _write(self, rows: Rows, number: int, checkpoint: int | None) -> Shard:
        name = shard_name(self._group, number, checkpoint)
        return write_tensors(self._folder, self._group, name, narrowed(self._group, rows))

    def _check(self, rows: Rows) -> int:
        found = {name: (tensor.dtype, tensor.shape[1:]) for name, tensor in rows.items()}
        known = {name: (tensor.dtype, tensor.shape[1:]) for name, tensor in self._buffer.items()}
        counts = {len(tensor) for tensor in rows.values()}
        if found != known or len(counts) != 1:
            raise ValueError(f"rows of {self._group!r} are {known}, not {found} of {counts} rows")
        return counts.pop()


class TextWriter:
    """Collects raw bytes and writes them as gzip files, each with the positions of its newlines.

    Args:
        folder: where the files go.
        full: files that an earlier run wrote, each text before its lines.
    """

    def __init__(self, folder: Confined, full: Sequence[Shard] = ()):
        self._folder = folder
        self._full = list(full)
        self._pending = bytearray()  # the open member
        self._closed: list[tuple[bytes, torch.Tensor]] = []  # of the open file
        self._packed: tuple[tuple[int, ...], tuple[bytes, torch.Tensor]] | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes that are not in any file yet, a checkpoint's included."""
        members = self._closed + ([self._open()] if self._pending else [])
        return sum(len(member) + newlines.nbytes for member, newlines in members)

    def add(self, data: bytes) -> None:
        """Append raw bytes."""
        view = memoryview(data)
        while view:
            room = shards.MEMBER - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            if len(self._pending) == shards.MEMBER:
                self._closed.append(self._close())
                self._pending.clear()
            if len(self._closed) == shards.MEMBERS:
                self._full += self._write(self._closed, shards.MEMBERS * shards.MEMBER, None)
                self._closed.clear()

    def shards(self, checkpoint: int | None) -> list[Shard]:
        """Every shard so far; leftover bytes are written as a tail of `checkpoint`."""
        members = self._closed + ([self._open()] if self._pending else [])
        raw = len(self._closed) * shards.MEMBER + len(self._pending)
        return self._full + (self._write(members, raw, checkpoint) if members else [])

    @property
    def _number(self) -> int:
        return len(self._full) // 2

    def _open(self) -> "tuple[bytes, torch.Tensor]":
        """As `_close`; what has not grown since the last call is not compressed again."""
        now = self._number, len(self._closed), len(self._pending)
        if self._packed is None or self._packed[0] != now:
            self._packed = now, self._close()
        return self._packed[1]

    def _close(self) -> "tuple[bytes, torch.Tensor]":
        """The open member, compressed, and where its newlines are in the whole text (n,) int64."""
        import torch

        raw = bytearray(self._pending)
        start = (self._number * shards.MEMBERS + len(self._closed)) * shards.MEMBER
        newlines = torch.frombuffer(raw, dtype=torch.uint8).eq(ord("\n")).nonzero().flatten()
        return compress_member(raw), newlines + start

    def _write(
        self, members: "list[tuple[bytes, torch.Tensor]]", raw: int, checkpoint: int | None
    ) -> list[Shard]:
        import torch

        packed, newlines = zip(*members, strict=True)
        sizes = tuple(len(member) for member in packed)
        name = shard_name("text", self._number, checkpoint)
        blocks = write_file(self._folder, name, sum(sizes), packed)
        text = Shard(name, "text", len(sizes), sum(sizes), tuple(blocks), sizes, raw)
        name = shard_name("lines", self._number, checkpoint)
        lines = write_tensors(self._folder, "lines", name, {"newlines": torch.cat(newlines)})
        return [text, lines]
