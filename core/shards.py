"""The files of a document: tensors in safetensors, text in gzip; written whole, read in part.

A file appears under its name only when it is whole and synced, and a `Shard` describes it: its size
and the xxh3-128 of every 1 MiB block. A block is verified the first time that a read touches it.
`docs/format.md` specifies the bytes. This module knows nothing of libraries, manifests or methods.
torch is imported where tensors are handled, so that listing a library does not wait for it.
"""

import json
import math
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from safetensors import SafetensorError
from xxhash import xxh3_128_hexdigest

from longctx.core.errors import LongctxError, StateMismatch

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 20  # bytes under one checksum
MEMBER = 1 << 20  # raw bytes in one gzip member
MEMBERS = 64  # gzip members in one text file
SHARD_ROWS = 1 << 16  # rows in one shard, unless they would pass SHARD_BYTES
SHARD_BYTES = 1 << 27  # bounds the memory that a group's buffer takes
TEMPORARY = ".tmp-"  # unfinished files; no shard and no document can have such a name
AGAIN = "Ingest the document again with --replace"

_GROUP = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NAME = re.compile(rf"({_GROUP.pattern})-(\d{{5,9}})(\.\d{{5,9}})?\.(safetensors|gz)")
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")  # deflate, no flags, no time, unknown system
_GAP = 1 << 16  # reading over this many unwanted bytes is cheaper than another read
_DTYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}

Rows = dict[str, "torch.Tensor"]


@dataclass(frozen=True)
class Shard:
    """What the manifest records of one file; a value that no writer makes is a ValueError.

    Args:
        file: the name, which carries group and number (`shard_name`).
        group: "text", "lines", "tokens", "memory", or a group that a method keeps.
        rows: first dimension of every tensor; gzip members of a text file; 0 for "memory".
        size: bytes on disk.
        blocks: xxh3-128 (hex) of each 1 MiB block.
        members: text only: the compressed size of each gzip member.
        raw: text only: bytes of the decompressed text.
    """

    file: str
    group: str
    rows: int
    size: int
    blocks: tuple[str, ...]
    members: tuple[int, ...] | None = None
    raw: int | None = None

    def __post_init__(self) -> None:
        is_text = self.group == "text"
        parts = _NAME.fullmatch(self.file)
        if not parts or parts[1] != self.group or (parts[4] == "gz") != is_text:
            raise ValueError(f"{self.file!r} is no file name of group {self.group!r}")
        if self.rows < 0 or self.size < 0 or len(self.blocks) != math.ceil(self.size / BLOCK):
            raise ValueError(f"{self.file}: rows, size and blocks do not fit together")
        if (self.members is not None, self.raw is not None) != (is_text, is_text):
            raise ValueError(f"{self.file}: text files, and only these, have members and raw")
        if is_text and not self._is_text_consistent():
            raise ValueError(f"{self.file}: rows, members and raw do not fit together")

    def _is_text_consistent(self) -> bool:
        count = len(self.members)
        sizes_fit = min(self.members, default=0) > 0 and sum(self.members) == self.size
        return sizes_fit and self.rows == count == math.ceil(self.raw / MEMBER) <= MEMBERS

    @property
    def number(self) -> int:
        """The position of this file in its group, from its name."""
        return int(_NAME.fullmatch(self.file)[2])

    @property
    def is_tail(self) -> bool:
        """True for a file written for one checkpoint, to be superseded by the next."""
        return _NAME.fullmatch(self.file)[3] is not None


def shard_name(group: str, number: int, checkpoint: int | None) -> str:
    """The file name of one shard; `checkpoint` is that of a tail, None for final files."""
    suffix = "" if checkpoint is None else f".{checkpoint:05d}"
    return f"{group}-{number:05d}{suffix}.{'gz' if group == 'text' else 'safetensors'}"


def compress_member(data: bytes) -> bytes:
    """`data` as one gzip member: level 6, no name, no time; equal text gives equal bytes."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data))


def damaged(path: Path, why: str) -> StateMismatch:
    """The error for a file that is not what was written; say in `why` what is wrong."""
    return StateMismatch(f"'{path}' is damaged", why, AGAIN)


# ---- writing


@contextmanager
def storing(path: Path, needed: int = 0) -> Iterator[None]:
    """Translate a failed write of `path` (`needed` bytes) into a LongctxError with the figures."""
    try:
        yield
    except (OSError, SafetensorError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        home = next((parent for parent in path.parents if parent.is_dir()), path)
        free = shutil.disk_usage(home).free
        raise LongctxError(
            f"cannot write '{path}'",
            f"{why} ({needed:,} bytes needed, {free:,} bytes free)",
            "Finished documents are as they were. Make room or allow writing there, or choose "
            "another --library, and run the same command again",
        ) from exc


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(folder: Path, name: str, needed: int, write: Callable[[Path], object]) -> list[str]:
    """Let `write` fill a temporary file, then sync it and give it its name.

    Returns:
        The xxh3-128 of each 1 MiB block.

    Raises:
        LongctxError: the file cannot be written; nothing has the name that had it not before.
    """
    temporary = folder / f"{TEMPORARY}{name}"
    with storing(folder / name, needed):
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                blocks = [xxh3_128_hexdigest(b) for b in iter(partial(file.read, BLOCK), b"")]
                os.fsync(file.fileno())
            os.replace(temporary, folder / name)
            sync_folder(folder)
        finally:
            temporary.unlink(missing_ok=True)
    return blocks


def write_tensors(folder: Path, group: str, name: str, tensors: Rows) -> Shard:
    """Write one safetensors file.

    Args:
        folder: where.
        group: the group it belongs to; every group but "memory" has rows.
        name: the file name.
        tensors: on any device; for rows, all with one first dimension.

    Raises:
        ValueError: a tensor of a type that the format does not have.
        LongctxError: the file cannot be written.
    """
    from safetensors.torch import save_file

    known = {f"torch.{dtype}" for dtype, _ in _DTYPES.values()}
    for key, tensor in tensors.items():
        if str(tensor.dtype) not in known:
            raise ValueError(f"{group}: tensor {key!r} is {tensor.dtype}, which is not stored")
    needed = sum(tensor.nbytes for tensor in tensors.values())
    blocks = write_file(folder, name, needed, partial(save_file, _separate(tensors)))
    rows = 0 if group == "memory" else len(next(iter(tensors.values())))
    return Shard(name, group, rows, (folder / name).stat().st_size, tuple(blocks))


def _separate(tensors: Rows) -> Rows:
    """Contiguous CPU tensors, no two in one storage: safetensors refuses shared memory."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return result


class GroupWriter:
    """Collects the rows of one group and writes a shard whenever one is full.

    Args:
        folder: where the shards go.
        group: the group's name.
        like: any rows of the group; they fix names, types and the dimensions after the first.
        shard_rows: rows in a full shard; halved until a shard is at most SHARD_BYTES.
    """

    def __init__(self, folder: Path, group: str, like: Rows, shard_rows: int):
        import torch

        if not _GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot be the name of a group")
        self._folder, self._group = folder, group
        width = sum(math.prod(t.shape[1:]) * t.element_size() for t in like.values())
        while shard_rows > 1 and shard_rows * width > SHARD_BYTES:
            shard_rows //= 2
        self._buffer = {
            name: torch.empty((shard_rows, *tensor.shape[1:]), dtype=tensor.dtype)
            for name, tensor in like.items()
        }
        self._shard_rows, self._held = shard_rows, 0
        self._full: list[Shard] = []

    @property
    def rows(self) -> int:
        """Rows appended so far."""
        return len(self._full) * self._shard_rows + self._held

    def append(self, rows: Rows) -> None:
        """Copy `rows` (from any device) to the end; ValueError where they are not of this group."""
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
        """Every shard so far; rows that fill none are written as a tail of `checkpoint`."""
        if self._held or not self._full:
            return [*self._full, self._write(checkpoint)]
        return list(self._full)

    def _flush(self) -> None:
        if self._held == self._shard_rows:
            self._full.append(self._write(None))
            self._held = 0

    def _write(self, checkpoint: int | None) -> Shard:
        name = shard_name(self._group, len(self._full), checkpoint)
        held = {key: tensor[: self._held] for key, tensor in self._buffer.items()}
        return write_tensors(self._folder, self._group, name, held)

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
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._full: list[Shard] = []
        self._pending = bytearray()  # the open member
        self._closed: list[tuple[bytes, torch.Tensor]] = []  # of the open file

    def add(self, data: bytes) -> None:
        """Append raw bytes."""
        view = memoryview(data)
        while view:
            room = MEMBER - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            if len(self._pending) == MEMBER:
                self._closed.append(self._close())
                self._pending.clear()
            if len(self._closed) == MEMBERS:
                self._full += self._write(self._closed, MEMBERS * MEMBER, None)
                self._closed.clear()

    def shards(self, checkpoint: int | None) -> list[Shard]:
        """Every shard so far; bytes that fill no file are written as a tail of `checkpoint`."""
        members = self._closed + ([self._close()] if self._pending else [])
        raw = len(self._closed) * MEMBER + len(self._pending)
        return self._full + (self._write(members, raw, checkpoint) if members else [])

    @property
    def _number(self) -> int:
        return len(self._full) // 2

    def _close(self) -> "tuple[bytes, torch.Tensor]":
        """The open member, compressed, and where its newlines are in the whole text (n,) int64."""
        import torch

        raw = bytearray(self._pending)
        start = (self._number * MEMBERS + len(self._closed)) * MEMBER
        newlines = torch.frombuffer(raw, dtype=torch.uint8).eq(ord("\n")).nonzero().flatten()
        return compress_member(raw), newlines + start

    def _write(
        self, members: "list[tuple[bytes, torch.Tensor]]", raw: int, checkpoint: int | None
    ) -> list[Shard]:
        import torch

        packed, newlines = zip(*members, strict=True)
        sizes = tuple(len(member) for member in packed)
        name = shard_name("text", self._number, checkpoint)
        write = partial(Path.write_bytes, data=b"".join(packed))
        blocks = write_file(self._folder, name, sum(sizes), write)
        text = Shard(name, "text", len(sizes), sum(sizes), tuple(blocks), sizes, raw)
        name = shard_name("lines", self._number, checkpoint)
        lines = write_tensors(self._folder, "lines", name, {"newlines": torch.cat(newlines)})
        return [text, lines]


# ---- reading


class ShardFile:
    """One file of a document, read by offset; its size is checked here, its blocks when touched.

    Args:
        folder: the document's folder.
        shard: what the manifest says of the file.

    Raises:
        StateMismatch: the file is missing or has another size (here); a block differs (any read).
    """

    def __init__(self, folder: Path, shard: Shard):
        self.path, self.shard = folder / shard.file, shard
        self._verified: set[int] = set()
        try:
            status = self.path.stat()
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if status.st_size != shard.size:
            why = f"it has {status.st_size:,} bytes and should have {shard.size:,}"
            raise damaged(self.path, why)
        self._stamp = _stamp(status)

    def read(self, start: int, size: int) -> memoryview:
        """Verified bytes [start, start + size), in memory of their own."""
        last = (start + size - 1) // BLOCK
        new = [b for b in range(start // BLOCK, last + 1) if b not in self._verified]
        low, high = start, start + size
        if new:  # whole blocks, as far as they are not verified yet
            low = min(low, new[0] * BLOCK)
            high = max(high, min((new[-1] + 1) * BLOCK, self.shard.size))
        data = self._read(low, high - low)
        for block in new:
            begin = block * BLOCK - low
            if xxh3_128_hexdigest(data[begin : begin + BLOCK]) != self.shard.blocks[block]:
                raise damaged(self.path, f"block {block} does not have the recorded checksum")
            self._verified.add(block)
        return data[start - low : start - low + size]

    @property
    def checked_bytes(self) -> int:
        """Bytes in the blocks that have been verified."""
        return sum(min(BLOCK, self.shard.size - block * BLOCK) for block in self._verified)

    def verify(self) -> None:
        """Check every block, also those that were checked before."""
        self._verified.clear()
        for start in range(0, self.shard.size, BLOCK):
            self.read(start, min(BLOCK, self.shard.size - start))

    def _read(self, start: int, size: int) -> memoryview:
        import torch

        data = memoryview(torch.empty(size, dtype=torch.uint8).numpy())  # a bytearray: half as fast
        try:
            with self.path.open("rb") as file:
                if _stamp(os.fstat(file.fileno())) != self._stamp:
                    raise StateMismatch(
                        f"'{self.path}' is not the file that was opened",
                        "the document was replaced meanwhile",
                        "Run the command again",
                    )
                file.seek(start)
                found = file.readinto(data)
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if found != size:
            raise damaged(self.path, f"it ends at byte {start + found:,}")
        return data

    def _unreadable(self, exc: OSError) -> StateMismatch:
        return StateMismatch(
            f"cannot read '{self.path}'",
            exc.strerror or str(exc),
            f"If the document was removed or replaced just now, run the command again. {AGAIN} "
            "if the file is lost",
        )


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """What tells a file from another that takes its name: verified blocks are those of this one."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


class TextFile(ShardFile):
    """A gzip file of text, decompressed one member at a time.

    Args:
        folder: the document's folder.
        shard: what the manifest says of the file.
    """

    def __init__(self, folder: Path, shard: Shard):
        super().__init__(folder, shard)
        self._starts = [0, *accumulate(shard.members)]

    def member(self, index: int) -> bytes:
        """The raw bytes of one member: MEMBER of them, fewer in the last one of the document."""
        packed = self.read(self._starts[index], self.shard.members[index])
        inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            raw = inflate.decompress(packed, MEMBER + 1)  # never more, whatever the file says
        except zlib.error as exc:
            raise damaged(self.path, str(exc)) from exc
        expected = min(MEMBER, self.shard.raw - index * MEMBER)
        if not inflate.eof or len(raw) != expected:
            raise damaged(self.path, f"member {index} does not hold {expected:,} bytes")
        return raw


class _Slot(NamedTuple):
    """Where a tensor lies: dtype by its torch name, shape, byte offset in the file, row bytes."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    row_bytes: int


class TensorFile(ShardFile):
    """A safetensors file, of which tensors, or rows of them, are read without loading the rest."""

    def __init__(self, folder: Path, shard: Shard):
        super().__init__(folder, shard)
        length = int.from_bytes(self._read(0, 8), "little") if shard.size >= 8 else shard.size
        self._data = 8 + length  # where the tensors begin
        if self._data > shard.size:
            raise damaged(self.path, "its header is longer than the file")
        self._parse(self._read(8, length))  # the form now; the checksum when it is used

    @cached_property
    def slots(self) -> dict[str, _Slot]:
        """The tensors by name, from the verified header."""
        return self._parse(self.read(0, self._data)[8:])

    def rows(self, name: str, first: int, last: int) -> "torch.Tensor":
        """Rows [first, last) of one tensor, (last - first, ...)."""
        slot = self._find(name)
        return self._load(slot, (last - first, *slot.shape[1:]), first * slot.row_bytes)

    def tensor(self, name: str) -> "torch.Tensor":
        """One whole tensor, of any number of dimensions."""
        slot = self._find(name)
        return self._load(slot, slot.shape, 0)

    def take(self, name: str, rows: "torch.Tensor") -> "torch.Tensor":
        """The rows at ascending positions `rows` (S,), int64 on the CPU: (S, ...)."""
        import torch

        gap = max(1, _GAP // max(1, self._find(name).row_bytes))
        cuts = (rows.diff() > gap).nonzero().flatten() + 1
        runs = rows.tensor_split(cuts)
        return torch.cat(
            [self.rows(name, int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in runs]
        )

    def _find(self, name: str) -> _Slot:
        if name not in self.slots:
            raise damaged(self.path, f"it has no tensor {name!r}")
        return self.slots[name]

    def _load(self, slot: _Slot, shape: tuple[int, ...], offset: int) -> "torch.Tensor":
        import torch

        dtype = getattr(torch, slot.dtype)
        size = math.prod(shape) * dtype.itemsize
        if not size:  # torch refuses empty buffers
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.read(slot.start + offset, size), dtype=dtype).view(shape)

    def _parse(self, header: memoryview) -> dict[str, _Slot]:
        try:
            entries = json.loads(bytes(header))
            return {name: self._slot(entry) for name, entry in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise damaged(self.path, f"its header is not one of this format ({exc})") from exc

    def _slot(self, entry: dict) -> _Slot:
        dtype, itemsize = _DTYPES[entry["dtype"]]
        shape, (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
        size = math.prod(shape) * itemsize
        if any(type(number) is not int for number in (*shape, start, stop)):
            raise ValueError("shapes and offsets are whole numbers")
        if min((*shape, start)) < 0 or stop - start != size or self._data + stop > self.shard.size:
            raise ValueError("a tensor lies outside the file")
        if self.shard.group != "memory" and shape[:1] != (self.shard.rows,):
            raise ValueError(f"{shape[:1]} rows where {self.shard.rows} are recorded")
        row_bytes = math.prod(shape[1:]) * itemsize
        return _Slot(dtype, shape, self._data + start, row_bytes)
