"""The container of a GGUF file: metadata, and where each tensor is. Its tensors are not read.

Nothing that a file states is believed: every count and length is compared with the bytes that are
left and with a limit before anything of that size is made. Knows nothing of models.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longctx.core.common import file_limits
from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import REMEDY, foreign
from longctx.core.common.regular_files import open_regular
from longctx.core.model.gguf.parts import MOST_FILES, parts
from longctx.core.model.gguf.types import TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS, MOST_TENSORS = 4096, 100_000
MOST_STRINGS = 2_000_000  # in all arrays: vocabulary and merges of 300,000 tokens have 1,000,000
LONGEST_NAME = 512  # bytes of a key, or of a tensor's name
LARGEST_ALIGNMENT = 1 << 20
MOST_VALUES = 1 << 40  # in one tensor
# By the number of their types in a file; STRING and ARRAY besides.
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?"}
NUMBERS |= {10: "<u8", 11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9


class Stored(NamedTuple):
    """A tensor in a file.

    Attributes:
        file: the file that has it.
        shape: its dimensions, the last being a row in the file.
        type: number of its type in TYPES.
        start, size: its bytes in the file.
    """

    file: Path
    shape: tuple[int, ...]
    type: int
    start: int
    size: int


@dataclass(frozen=True)
class Container:
    """What a GGUF file states, over all files of a model that is split.

    Attributes:
        path: the file, or the first of several.
        metadata: by key: bool, int, float, str, a list of str, or a numpy array.
        tensors: by llama.cpp's name, in the file's order.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, Stored]


def open_container(path: Path) -> Container:
    """Reads the header of a GGUF file, and those of the other files if it is split.

    Raises:
        UsageError: it is no GGUF file, or damaged, or not whole.
    """
    first = _read(path)
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= MOST_FILES:
        raise _damaged(path, f"split.count is {str(count)[:80]!a}")
    tensors = dict(first.tensors)
    for other in _others(path, count):
        more = _read(other).tensors
        if twice := tensors.keys() & more.keys():
            raise _damaged(other, f"it has {_shown(min(twice))} again")
        tensors |= more
    wanted = first.metadata.get("split.tensors.count", len(tensors))
    if count > 1 and wanted != len(tensors):
        raise _damaged(path, f"its {count} files have {len(tensors):,} of {wanted!s:.20} tensors")
    return Container(path, first.metadata, tensors)


def _others(path: Path, count: int) -> list[Path]:
    """The other files of a model that is split over several.

    Raises:
        UsageError: the file is not the first, or is named otherwise than all these files are.
    """
    if count < 2:
        return []
    files = parts(path)
    if len(files) != count:
        raise UsageError(
            f"cannot read {str(path)!r}",
            f"it is one of {count} files, and is not named like one",
            f"Name them NAME-00001-of-{count:05}.gguf and so on, in one folder.",
        )
    if path != files[0]:
        raise UsageError(
            f"cannot read {str(path)!r} by itself",
            f"it is one of {count} files, and the first says what the model is",
            f"Name the first one: {files[0].name}.",
        )
    return files[1:]


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"cannot read {str(path)!r}", why, REMEDY)


def _shown(name: str) -> str:
    """A name from the file, for a message."""
    return f"{name[:80]!a}"


# --- one file -----------------------------------------------------------------------------------


class _Reader:
    """Reads the parts of a header; ValueError where a part is beyond the file or a limit."""

    def __init__(self, stream: BufferedReader, size: int):
        self._stream = stream
        self.position = 0
        self.size = size
        self._strings = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.size - self.position:
            raise ValueError("it ends within its header: a copy or download was stopped")
        if self.position + count > file_limits.GGUF_HEADER:
            raise ValueError(f"its header has more than {file_limits.GGUF_HEADER:,} bytes")
        data = self._stream.read(count)
        if len(data) != count:
            raise ValueError("it became shorter while it was read")
        self.position += count
        return data

    def number(self, form: str) -> int:
        """The next number, in a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, longest: int = file_limits.TOKENIZER) -> str:
        """The next string; what is not UTF-8 in it is replaced."""
        length = self.number("<Q")
        if length > longest:
            raise ValueError(f"a name or text in its header has {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")

    def value(self) -> Any:
        """The next value, with its type before it."""
        kind = self.number("<I")
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self._array()
        return self._numbers(kind, 1)[0].item()

    def _array(self) -> Any:
        kind, count = self.number("<I"), self.number("<Q")
        if kind == ARRAY:
            raise ValueError("its header has an array of arrays")
        if kind != STRING:
            return self._numbers(kind, count)
        self._strings += count
        if self._strings > MOST_STRINGS:
            raise ValueError(f"its header has more than {MOST_STRINGS:,} strings")
        return [self.text() for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> np.ndarray:
        if kind not in NUMBERS:
            raise ValueError(f"a value in its header has the unknown type {kind}")
        form = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.take(count * form.itemsize), form)


def _read(path: Path) -> Container:
    """One file's header.

    Raises:
        UsageError: says what is wrong with it.
    """
    with foreign(f"cannot read {str(path)!r}"), open_regular(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        reader = _Reader(stream, size)
        tensors, keys = _counts(reader)
        metadata = dict(_metadata(reader, keys))
        listed = [_listed(reader) for _ in range(tensors)]
        start = _aligned(reader.position, _alignment(metadata))
        stored = _placed(path, listed, start, size, _alignment(metadata))
    return Container(path, metadata, stored)


def _counts(reader: _Reader) -> tuple[int, int]:
    """The numbers of tensors and keys; ValueError if the file is not GGUF, or of no known version.

    (The first version, of 2023, has other lengths.)
    """
    if reader.take(min(len(MAGIC), reader.size)) != MAGIC:
        raise ValueError("it is no GGUF file")
    version = reader.number("<I")
    if version not in VERSIONS:
        swapped = struct.unpack(">I", struct.pack("<I", version))[0]
        if swapped in VERSIONS:
            raise ValueError("it is a big-endian GGUF file, which this version does not read")
        raise ValueError(f"it is GGUF version {version:,}; versions 2 and 3 are read")
    tensors, keys = reader.number("<Q"), reader.number("<Q")
    if tensors > MOST_TENSORS or keys > MOST_KEYS:
        raise ValueError(
            f"its header says {tensors:,} tensors and {keys:,} keys; "
            f"{MOST_TENSORS:,} and {MOST_KEYS:,} are the most"
        )
    return tensors, keys


def _metadata(reader: _Reader, count: int) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for _ in range(count):
        key = reader.text(LONGEST_NAME)
        if key in seen:
            raise ValueError(f"its header has {_shown(key)} twice")
        seen.add(key)
        yield key, reader.value()


def _listed(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """The next tensor's name, shape, type and offset."""
    name = reader.text(LONGEST_NAME)
    dimensions = reader.number("<I")
    if not 1 <= dimensions <= 4:
        raise ValueError(f"its header says that {_shown(name)} has {dimensions:,} dimensions")
    shape = tuple(reader.number("<Q") for _ in range(dimensions))[::-1]
    kind, offset = reader.number("<I"), reader.number("<Q")
    return name, shape, kind, offset


def _alignment(metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 1 <= value <= LARGEST_ALIGNMENT or value & (value - 1):
        raise ValueError(f"general.alignment is {str(value)[:80]!a}")
    return value


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _placed(
    path: Path,
    listed: list[tuple[str, tuple[int, ...], int, int]],
    start: int,
    size: int,
    alignment: int,
) -> dict[str, Stored]:
    """The tensors with their places; ValueError if they overlap or are not all in the file."""
    placed: dict[str, Stored] = {}
    for name, shape, kind, offset in listed:
        if name in placed:
            raise ValueError(f"its header has {_shown(name)} twice")
        if offset % alignment:
            raise ValueError(f"{_shown(name)} does not begin at a multiple of {alignment} bytes")
        placed[name] = Stored(path, shape, kind, start + offset, _size(name, shape, kind))
    end = start
    for name, tensor in sorted(placed.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise ValueError(f"{_shown(name)} overlaps another tensor")
        end = tensor.start + tensor.size
    if end > size and placed:
        raise ValueError(
            f"it has {size:,} bytes of at least {end:,}: a copy or download was stopped"
        )
    return placed


def _size(name: str, shape: tuple[int, ...], kind: int) -> int:
    """The bytes of a tensor; ValueError if its type is unknown or does not fit its shape."""
    values = math.prod(shape)
    if not 1 <= values <= MOST_VALUES:
        raise ValueError(f"its header says that {_shown(name)} has the shape {shape}")
    if kind not in TYPES:
        raise ValueError(f"{_shown(name)} has the tensor type {kind}, which is not supported")
    block, size = TYPES[kind].block, TYPES[kind].size
    if shape[-1] % block:
        raise ValueError(f"{_shown(name)} has rows of {shape[-1]}, not of whole blocks of {block}")
    return values // block * size
