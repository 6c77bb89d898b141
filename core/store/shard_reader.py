"""Reads the files of a document in part, by offset; each block is verified at first use.

`docs/format.md` specifies the bytes. This module knows nothing of libraries, manifests or methods.
torch is imported when tensors are requested: text, places and words are read with numpy alone.
"""

import json
import math
import os
import stat
import zlib
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import StateMismatch
from longctx.core.store import shards
from longctx.core.store.confined import Confined
from longctx.core.store.open_files import OpenFile, each_part, opened
from longctx.core.store.shards import AGAIN, DTYPES, Shard

if TYPE_CHECKING:
    import numpy as np
    import torch

HEADER_BYTES = 1 << 20  # the longest header of a safetensors file
_DIMENSIONS = 16  # most dimensions of a tensor
_ELEMENTS = 1 << 60  # most elements of a tensor, counting dimensions of 0 as 1: torch's limit
_SMALL = 1 << 16  # bytes up to which a read uses Python's own memory
_OF_NUMPY = {"bfloat16": "int16"}  # numpy has types for all others
PART_BLOCKS = 8  # of a large read that one thread reads and checks at a time
_GAP = 1 << 16  # reading this many unneeded bytes is cheaper than another read


class ShardFile:
    """One file of a document, read by offset; its size is checked here, its blocks when read.

    Args:
        folder: the document's folder.
        shard: what the manifest says of the file.

    Raises:
        StateMismatch: the file is missing or has another size (here); a block differs (any read).
    """

    def __init__(self, folder: Confined, shard: Shard):
        self.path, self.shard = folder / shard.file, shard
        self._verified: set[int] = set()
        try:
            status = self.path.stat()
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if not stat.S_ISREG(status.st_mode):
            raise self._damaged("it is no regular file")
        if status.st_size != shard.size:
            why = f"it has {status.st_size:,} bytes and should have {shard.size:,}"
            raise self._damaged(why)
        self._stamp = _stamp(status)

    def read(self, start: int, size: int) -> memoryview:
        """Verified bytes [start, start + size), in their own memory."""
        last = (start + size - 1) // shards.BLOCK
        new = [b for b in range(start // shards.BLOCK, last + 1) if b not in self._verified]
        low, high = start, start + size
        if new:  # whole blocks that are not verified yet
            low = min(low, new[0] * shards.BLOCK)
            high = max(high, min((new[-1] + 1) * shards.BLOCK, self.shard.size))
        data = _room(high - low)
        self._fill_checked(low, data, frozenset(new), PART_BLOCKS)
        return data[start - low : start - low + size]

    def fill(self, start: int, data: memoryview, verified: bool) -> None:
        """Fills `data` from byte `start` on, a block's; it ends with a block.

        Args:
            verified: else the caller verifies all but a last block that is not whole, and says
                so: `take_checksums`.
        """
        end = start + len(data)
        every = range(start // shards.BLOCK, -(-end // shards.BLOCK))
        some = every if verified else every[-1:] if end % shards.BLOCK else ()
        self._fill_checked(start, data, frozenset(some) - self._verified, len(every))

    def take_checksums(self, found: list[str]) -> list[int]:
        """Takes the checksums of the first blocks, made elsewhere; which ones are not as recorded.

        What came of those is not to be used.
        """
        pairs = zip(found, self.shard.blocks, strict=False)
        other = [number for number, (one, recorded) in enumerate(pairs) if one != recorded]
        self._verified.update(range(len(found)))
        self._verified.difference_update(other)
        return other

    def _fill_checked(self, low: int, data: memoryview, new: frozenset[int], blocks: int) -> None:
        """Fills `data` from byte `low` on and verifies what are new blocks, so many in a thread."""
        file = self._opened()

        def fill(begin: int, end: int) -> None:
            part = data[begin - low : end - low]
            self._fill(file, begin, part)
            for block in range(-(-begin // shards.BLOCK), -(-end // shards.BLOCK)):
                if block in new:
                    self._verify(block, part[block * shards.BLOCK - begin :][: shards.BLOCK])

        each_part(low, low + len(data), blocks * shards.BLOCK, fill)

    def _verify(self, block: int, data: memoryview) -> None:
        if xxh3_128_hexdigest(data) != self.shard.blocks[block]:
            raise self._damaged(f"block {block} does not have the recorded checksum")
        self._verified.add(block)

    @property
    def checked_bytes(self) -> int:
        """Bytes in the blocks that have been verified."""
        starts = [block * shards.BLOCK for block in self._verified]
        return sum(min(shards.BLOCK, self.shard.size - start) for start in starts)

    def _read(self, start: int, size: int) -> memoryview:
        data = _room(size)
        self._fill(self._opened(), start, data)
        return data

    def _opened(self) -> OpenFile:
        """The file, if it is still the one whose size was checked."""
        try:
            file = opened(self.path, self._stamp)
            found = _stamp(file.status())
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if found != self._stamp:
            raise StateMismatch(
                f"'{self.path}' is not the file that was opened",
                "the document was replaced meanwhile",
                "Run the command again",
                self.path.parent.name,
            )
        return file

    def _fill(self, file: OpenFile, start: int, data: memoryview) -> None:
        try:
            found = file.read_into(start, data)
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if found != len(data):
            raise self._damaged(f"it ends at byte {start + found:,}")

    def _unreadable(self, exc: OSError) -> StateMismatch:
        return StateMismatch(
            f"cannot read '{self.path}'",
            exc.strerror or str(exc),
            f"If the document was removed or replaced just now, run the command again. {AGAIN} "
            f"if the file is lost{self._meanwhile}",
            self.path.parent.name,
        )

    def _damaged(self, why: str) -> StateMismatch:
        remedy, document = AGAIN + self._meanwhile, self.path.parent.name
        return StateMismatch(f"'{self.path}' is damaged", why, remedy, document)

    @property
    def _meanwhile(self) -> str:
        """What the user can do without the file."""
        spared = self.shard.group not in shards.FOR_WORDS
        return "; `longctx find --gather-by bm25` works without this file" if spared else ""


def _room(size: int) -> memoryview:
    """Writable memory to read into."""
    if size < _SMALL:  # as on opening a document: `list` does not import numpy
        return memoryview(bytearray(size))
    import numpy as np

    return np.empty(size, np.uint8).data  # a bytearray would be half as fast


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Tells a file from another that takes its name: verified blocks belong to this one."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


class TextFile(ShardFile):
    """A gzip file of text, decompressed one member at a time.

    Args:
        folder: the document's folder.
        shard: what the manifest says of the file.
    """

    def __init__(self, folder: Confined, shard: Shard):
        super().__init__(folder, shard)
        self._sizes, self._raw = shard.members or (), shard.raw or 0
        self._starts = [0, *accumulate(self._sizes)]

    def member(self, index: int) -> bytes:
        """The raw bytes of one member: MEMBER of them, fewer in the last one of the document."""
        packed = self.read(self._starts[index], self._sizes[index])
        inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            # never more, whatever the file claims
            raw = inflate.decompress(packed, shards.MEMBER + 1)
        except zlib.error as exc:
            raise self._damaged(str(exc)) from exc
        expected = min(shards.MEMBER, self._raw - index * shards.MEMBER)
        if not inflate.eof or len(raw) != expected:
            raise self._damaged(f"member {index} does not hold {expected:,} bytes")
        return raw


# Tensors of the groups that are the same for every method: dtype, dimensions. Files may have the
# narrower type of `shards.NARROW`; what is read of them has this one.
_FORMS = {
    "lines": {"newlines": ("int64", 1)},
    "tokens": {"ids": ("int32", 1), "starts": ("int64", 1)},
    "marks": {"starts": ("int64", 1), "numbers": ("int64", 1)},
    "words": {
        "terms": ("uint8", 1),
        "heads": ("int32", 1),
        "passages": ("int32", 1),
        "counts": ("uint8", 1),
        "lengths": ("int32", 1),
        "sources": ("int32", 1),
        "tokens": ("int64", 1),
        "bytes": ("int64", 1),
    },
    "vectors": {"vectors": ("int8", 2), "scales": ("float16", 1)},
    "segment": {
        "terms": ("uint8", 1),
        "heads": ("int64", 1),
        "passages": ("int32", 1),
        "counts": ("uint8", 1),
        "lengths": ("int32", 1),
        "documents": ("int32", 1),
        "sources": ("int32", 1),
        "tokens": ("int32", 1),
        "starts": ("int64", 1),
    },
}


class Slot(NamedTuple):
    """Where a tensor is: dtype by its torch name, shape, bytes [start, stop), bytes of a row.

    `stored` is the dtype in the file, which may be narrower than the one that readers get.
    """

    dtype: str
    stored: str
    shape: tuple[int, ...]
    start: int
    stop: int
    row_bytes: int


class TensorFile(ShardFile):
    """A safetensors file whose tensors, or rows of them, are read without loading the rest.

    `array...` methods give numpy arrays, with bfloat16 as int16, and do not import torch; the
    others give torch tensors. Only numbers that are stored narrower are copied.

    Attributes:
        form: dtype and dimensions after the first of each tensor; all files of a group share it.
    """

    def __init__(self, folder: Confined, shard: Shard):
        super().__init__(folder, shard)
        self._kept: dict[str, np.ndarray] = {}
        length = int.from_bytes(self._read(0, 8), "little") if shard.size >= 8 else shard.size
        self._data = 8 + length  # where the tensors begin
        if self._data > shard.size:
            raise self._damaged("its header is longer than the file")
        if length > HEADER_BYTES:
            raise self._damaged(f"its header has {length:,} bytes, over {HEADER_BYTES:,}")
        header = bytes(self._read(8, length))
        slots = self._parse(header)  # checks the form now, the checksum on use
        self._unverified = header, slots
        self.form = {name: (slot.dtype, slot.shape[1:]) for name, slot in slots.items()}

    @property
    def data_start(self) -> int:
        """The byte where the tensors begin, behind the header."""
        return self._data

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """The tensors by name, from the verified header."""
        verified, (header, slots) = bytes(self.read(0, self._data)[8:]), self._unverified
        return slots if verified == header else self._parse(verified)

    def rows(self, name: str, first: int, last: int) -> "torch.Tensor":
        """Rows [first, last) of one tensor, (last - first, ...)."""
        return self.as_tensor(name, self.array_rows(name, first, last))

    def tensor(self, name: str) -> "torch.Tensor":
        """One whole tensor, of any number of dimensions."""
        return self.as_tensor(name, self.array(name))

    def as_tensor(self, name: str, array: "np.ndarray") -> "torch.Tensor":
        """The same memory as a tensor, with the element type of the tensor `name`."""
        import torch

        return torch.from_numpy(array).view(getattr(torch, self._find(name).dtype))

    def arrays(self) -> "dict[str, np.ndarray]":
        """All tensors by name; the file is read in one go."""
        import numpy as np

        data = self.read(0, self.shard.size)
        return {
            name: np.frombuffer(data[slot.start : slot.stop], slot.dtype).reshape(slot.shape)
            for name, slot in self.slots.items()
        }

    def array(self, name: str) -> "np.ndarray":
        """One whole tensor, of any number of dimensions."""
        slot = self._find(name)
        return self._load_array(slot, slot.shape, 0)

    def array_rows(self, name: str, first: int, last: int) -> "np.ndarray":
        """Rows [first, last) of one tensor, (last - first, ...)."""
        slot = self._find(name)
        return self._load_array(slot, (last - first, *slot.shape[1:]), first * slot.row_bytes)

    def array_take(self, name: str, rows: "np.ndarray", keep: bool) -> "np.ndarray":
        """The rows at ascending positions `rows` (S,), S > 0: (S, ...).

        With `keep`, a tensor of at most one block, which is verified as a whole anyway, is cached.
        """
        import numpy as np

        slot = self._find(name)
        if keep and slot.stop - slot.start <= shards.BLOCK:
            if name not in self._kept:
                self._kept[name] = self.array(name)
            return self._kept[name][rows]
        gap = max(1, _GAP // max(1, slot.row_bytes))
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > gap) + 1)
        return np.concatenate(
            [self.array_rows(name, int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in runs]
        )

    def fill_verified(self, name: str, first: int, data: memoryview) -> bool:
        """Reads rows from `first` on into `data` if they were verified; whether they were."""
        slot = self._find(name)
        start = slot.start + first * slot.row_bytes
        last = (start + len(data) - 1) // shards.BLOCK
        known = all(b in self._verified for b in range(start // shards.BLOCK, last + 1))
        if known:
            self._fill(self._opened(), start, data)
        return known

    def fill_rows(self, name: str, first: int, data: memoryview) -> None:
        """Reads rows from `first` on into `data`, and verifies the blocks that they are in."""
        slot = self._find(name)
        data[:] = self.read(slot.start + first * slot.row_bytes, len(data))

    def _find(self, name: str) -> Slot:
        if name not in self.slots:
            raise self._damaged(f"it has no tensor {name!r}")
        return self.slots[name]

    def _load_array(self, slot: Slot, shape: tuple[int, ...], offset: int) -> "np.ndarray":
        import numpy as np

        dtype = np.dtype(_OF_NUMPY.get(slot.dtype, slot.dtype))
        stored = dtype if slot.stored == slot.dtype else np.dtype(slot.stored)
        size = math.prod(shape) * stored.itemsize
        if not size:
            return np.empty(shape, dtype)
        found = np.frombuffer(self.read(slot.start + offset, size), stored).reshape(shape)
        return found.astype(dtype, copy=False)

    def _parse(self, header: bytes) -> dict[str, Slot]:
        try:
            entries = json.loads(header)
            slots = {name: self._slot(name, entry) for name, entry in entries.items()}
            self._require_form(slots)
            return slots
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise self._damaged(f"its header is not one of this format ({exc})") from exc

    def _slot(self, name: str, entry: dict) -> Slot:
        stored, itemsize = DTYPES[entry["dtype"]]
        narrow = stored == shards.NARROW.get((self.shard.group, name))
        dtype = _FORMS[self.shard.group][name][0] if narrow else stored
        shape, (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
        if any(type(number) is not int for number in (*shape, start, stop)):
            raise ValueError("shapes and offsets are whole numbers")
        elements = math.prod(max(number, 1) for number in shape[:_DIMENSIONS])
        if min(shape, default=0) < 0 or len(shape) > _DIMENSIONS or elements > _ELEMENTS:
            raise ValueError("a tensor has a shape that none can have")
        if stop - start != math.prod(shape) * itemsize:
            raise ValueError("a tensor has more or fewer bytes than its shape")
        if self.shard.group not in shards.ROWLESS and shape[:1] != (self.shard.rows,):
            raise ValueError(f"{shape[:1]} rows where {self.shard.rows} are recorded")
        row_bytes = math.prod(shape[1:]) * itemsize
        return Slot(dtype, stored, shape, self._data + start, self._data + stop, row_bytes)

    def _require_form(self, slots: dict[str, Slot]) -> None:
        """ValueError unless the tensors fill the rest of the file and fit the group."""
        end = self._data
        for start, stop in sorted((slot.start, slot.stop) for slot in slots.values()):
            if start != end:
                raise ValueError("its tensors do not follow one another")
            end = stop
        if end != self.shard.size:
            raise ValueError("its tensors do not end where the file does")
        found = {name: (slot.dtype, len(slot.shape)) for name, slot in slots.items()}
        if found != _FORMS.get(self.shard.group, found):
            raise ValueError(f"its tensors are not those of {self.shard.group!r}")
