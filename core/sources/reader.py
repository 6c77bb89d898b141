"""Reads a text source of any size as decoded blocks, each character with its byte offset.

Bytes come in 1 MiB pieces and leave as text, so memory does not grow with the source. Nothing
is normalised: line ends stay as they are, bytes that cannot be decoded become U+FFFD and are
counted, and `raw[start:end].decode(encoding, "replace")` gives back the text between any two
characters (but in encodings like GB18030, where its last bytes are undecodable or follow such
ones). Knows nothing of tokenizers, models or where the bytes are kept.
"""

import codecs
import hashlib
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol

import numpy as np

from longctx.core.common.errors import UnreadableInput
from longctx.core.common.regular_files import open_regular
from longctx.core.sources.detect import detect
from longctx.core.sources.pieces import Readable

READ_BYTES = 1 << 20
_MARK = 0xDC00  # + the length of an undecodable run, while its place in the text is kept
_MARKS = re.compile("[\udc00-\udcff]")


@dataclass(frozen=True)
class Block:
    """A run of decoded text.

    Args:
        text: the characters.
        starts: (len(text) + 1,) int64, the byte offset in the source at which each character
            starts; the last one is where the block ends.
    """

    text: str
    starts: np.ndarray


class Made(Protocol):
    """Text that is made from a file: unpacked or converted (`sources/made.py`)."""

    lost: list[str]
    undecodable: int

    @property
    def marks(self) -> str | None:
        """What the numbers of its marks count; None: it has none."""
        ...

    @property
    def encoding(self) -> str:
        """Of the text; empty: nobody knows."""
        ...

    @property
    def size(self) -> int | None:
        """Of the text, where that is known."""
        ...

    def open(self) -> AbstractContextManager[Readable]:
        """The text, from its beginning."""
        ...

    def origin(self) -> tuple[int, str]:
        """Size and SHA-256 of the file."""
        ...

    def take_marks(self) -> list[tuple[int, int]]:
        """(byte of the text, number) of what was read since the last call."""
        ...


@dataclass
class Source:
    """One file, or standard input.

    While `blocks` is iterated, `size` is the number of bytes read so far, `sha256` their hash,
    `undecodable` the number of U+FFFD that stand for bytes, and `encoding` Python's name of the
    encoding (a byte order mark is not part of it).

    Args:
        name: as the user named it, and as citations print it.
        path: the file; None for a stream.
        stream: what is read when there is no path: standard input, once.
        made: how the text is made from the file; None: it is the file.
        refused: why it is not opened; None: it is.
        found: it was not named itself, but found in a folder or archive.
        header: text that the model sees before it; it is not part of the source.
        part: which part of the file it is, of an archive's members; empty: all of it.
    """

    name: str
    path: Path | None
    stream: BinaryIO | None = None
    made: Made | None = None
    refused: UnreadableInput | None = None
    found: bool = False
    header: str = ""
    part: str = ""
    size: int = field(default=0, init=False)
    sha256: str = field(default="", init=False)
    undecodable: int = field(default=0, init=False)
    encoding: str = field(default="", init=False)
    begin: int = field(default=0, init=False)  # byte at which reading it begins
    back: int = field(default=0, init=False)  # characters there that are of the text before
    kept: ClassVar[bool] = False  # the store has it, so it need not be compared with the store
    _lost: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def mtime_ns(self) -> int | None:
        """When it was modified, where that is known without its file."""
        return None

    @property
    def expected_size(self) -> int | None:
        """The text's size in bytes, known before it is read; None where it is not."""
        if self.refused:
            return 0
        if self.made:
            return self.made.size
        return self.path.stat().st_size if self.path and self.path.is_file() else None

    @cached_property
    def file(self) -> str | None:
        """The path by which it is recorded; None for what can be read only once."""
        return str(self.path.resolve()) if self.path and self.path.is_file() else None

    @property
    def lost(self) -> list[str]:
        """Messages on parts of the file that are missing in what was read."""
        return [*self._lost, *(self.made.lost if self.made else [])]

    def first_bytes(self, count: int) -> bytes:
        """Up to so many bytes of the text; none where it is a stream or cannot be read."""
        if self.path is None or self.refused:
            return b""
        try:
            with self._open() as file:
                return file.read(count)
        except (OSError, UnreadableInput):
            return b""  # reading it will say what is wrong

    def blocks(self, on_bytes: Callable[[bytes], None] | None = None) -> Generator[Block]:
        """Decodes the source from its first byte to its last.

        Args:
            on_bytes: receives the raw bytes, byte order mark included, each exactly once and in
                order, before the block that they are decoded in.

        Raises:
            UnreadableInput: the source is empty, binary, in no known encoding or unreadable.
        """
        reads = self._reads()
        data = next(reads)
        mark, digest = self._begin(data)
        undecoded, offset = data[mark:], self.size + mark
        while data:
            if on_bytes:
                on_bytes(data)
            digest.update(data)
            self.size, self.sha256 = self.size + len(data), digest.hexdigest()
            data = next(reads)
            block, bad = _decode(undecoded, offset, self.encoding, final=not data)
            undecoded = undecoded[int(block.starts[-1]) - offset :] + data
            offset = int(block.starts[-1])
            self.undecodable += bad
            if self.made and not data:
                self.undecodable += self.made.undecodable
            if block.text:
                yield block

    def _begin(self, data: bytes) -> "tuple[int, hashlib._Hash]":
        """Looks at the first bytes: the length of their mark, and the hash of what is before."""
        self.encoding, mark = self._detect(data)
        self.size = self.undecodable = 0
        return mark, self.hashed()

    def hashed(self) -> "hashlib._Hash":
        """The hash of its bytes before `begin`."""
        return hashlib.sha256()

    def _detect(self, data: bytes) -> tuple[str, int]:
        if self.made and self.made.encoding and data:
            return self.made.encoding, 0
        return detect(data, self.name, self.found, len(data) < READ_BYTES)

    def _reads(self) -> Iterator[bytes]:
        """The source's bytes in pieces, then one empty piece."""
        if self.refused:
            raise self.refused
        self._lost, read = [], 0
        try:
            with self._open() as file:
                while data := file.read(READ_BYTES):
                    read += len(data)
                    yield data
        except UnreadableInput as error:
            if not read:
                raise
            self._lost.append(f"{error.what}: what follows {read:,} bytes is lost: {error.why}")
        except OSError as error:
            raise UnreadableInput(
                f"cannot read '{self.name}'",
                error.strerror or str(error),
                f"Check the file and its permissions{'' if self.found else ', or leave it out'}.",
            ) from error
        yield b""

    def _open(self) -> AbstractContextManager[Readable]:
        if self.made:
            return self.made.open()
        if self.path:
            # What was named itself may be a pipe: it is waited for.
            return open_regular(self.path) if self.found else self.path.open("rb")
        return nullcontext(self.stream or sys.stdin.buffer)


def _decode(data: bytes, offset: int, encoding: str, final: bool) -> tuple[Block, int]:
    """Decodes what is complete in `data`, whose first byte is byte `offset` of the source.

    Returns:
        The block and its number of undecodable places. Unless `final`, the last character of
        `data` may stay undecoded; the block's last offset tells.
    """
    decoder = codecs.getincrementaldecoder(encoding)("longctx.mark")
    marked = decoder.decode(data, final)
    text, bad = _MARKS.subn("\ufffd", marked)
    starts = offset + np.concatenate([[0], np.cumsum(_widths(marked, encoding))])
    return Block(text, starts.astype(np.int64, copy=False)), bad


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Puts a character that no text can hold, and that tells the length, in place of an error."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(_MARK + error.end - error.start), error.end


codecs.register_error("longctx.mark", _mark)


def _widths(marked: str, encoding: str) -> np.ndarray:
    """(len(marked),) int64: how many bytes of the source each character takes."""
    points = np.frombuffer(marked.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    if encoding == "utf-8":
        widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    else:
        distinct, where = np.unique(points, return_inverse=True)
        encoded = [chr(point).encode(encoding, "replace") for point in distinct]
        widths = np.array([len(code) for code in encoded], dtype=np.int64)[where]
    errors = (points >= _MARK) & (points <= _MARK + 0xFF)
    return np.where(errors, points.astype(np.int64) - _MARK, widths)
