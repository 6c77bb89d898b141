"""Reads a text source of any size in decoded blocks, with the byte offset of each character.

Bytes come in 1 MiB pieces and leave as text, so memory does not grow with the source. Nothing
is normalised: line ends stay as they are, bytes that cannot be decoded become U+FFFD and are
counted, and `raw[start:end].decode(encoding, "replace")` returns the text between any two
characters (except in encodings like GB18030, where its last bytes are undecodable or follow such
bytes). Knows nothing of tokenizers, models or where the bytes are kept.
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
_MARK = 0xDC00  # + the length of an undecodable run: stands in for it in the text
_MARKS = re.compile("[\udc00-\udcff]")


@dataclass(frozen=True)
class Block:
    """A run of decoded text.

    Args:
        text: the characters.
        starts: (len(text) + 1,) int64, the byte offset in the source at which each character
            starts; the last is the end of the block.
    """

    text: str
    starts: np.ndarray


class Made(Protocol):
    """Text made from a file: unpacked or converted (`sources/made.py`)."""

    lost: list[str]
    undecodable: int

    @property
    def marks(self) -> str | None:
        """What the numbers of its marks count; None if it has none."""
        ...

    @property
    def encoding(self) -> str:
        """The text's encoding; empty if unknown."""
        ...

    @property
    def size(self) -> int | None:
        """The text's size in bytes; None if unknown."""
        ...

    def open(self) -> AbstractContextManager[Readable]:
        """The text, from its beginning."""
        ...

    def origin(self) -> tuple[int, str]:
        """Size in bytes and SHA-256 of the file."""
        ...

    def take_marks(self) -> list[tuple[int, int]]:
        """(byte of the text, number) for what was read since the last call."""
        ...


@dataclass
class Source:
    """One file, or standard input.

    While `blocks` is iterated, `size` is the number of bytes read so far, `sha256` their hash,
    `undecodable` the number of U+FFFD in place of bytes, and `encoding` Python's name of the
    encoding (which does not include a byte order mark).

    Args:
        name: as the user named it, and as citations print it.
        path: the file; None for a stream.
        stream: read if there is no path: standard input, once.
        made: makes the text from the file; None if the file is the text.
        refused: why it is not opened; None if it is.
        found: it was found in a folder or archive, not named by the user.
        header: text that the model sees before it; not part of the source.
        part: its path inside the file, for a member of an archive; empty if it is the whole file.
        passing: the file will not stay, as one that was sent: its path is not recorded.
    """

    name: str
    path: Path | None
    stream: BinaryIO | None = None
    made: Made | None = None
    refused: UnreadableInput | None = None
    found: bool = False
    header: str = ""
    part: str = ""
    passing: bool = False
    size: int = field(default=0, init=False)
    sha256: str = field(default="", init=False)
    undecodable: int = field(default=0, init=False)
    encoding: str = field(default="", init=False)
    begin: int = field(default=0, init=False)  # byte at which reading begins
    back: int = field(default=0, init=False)  # characters there that belong to the text before
    kept: ClassVar[bool] = False  # already in the store, so no comparison with it is needed
    _lost: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def mtime_ns(self) -> int | None:
        """Modification time, if known without opening the file; else None."""
        return None

    @property
    def expected_size(self) -> int | None:
        """The text's size in bytes, if known before reading; else None."""
        if self.refused:
            return 0
        if self.made:
            return self.made.size
        return self.path.stat().st_size if self.path and self.path.is_file() else None

    @cached_property
    def file(self) -> str | None:
        """The path under which it is recorded; None if it is read only once or does not stay."""
        if self.passing:
            return None
        return str(self.path.resolve()) if self.path and self.path.is_file() else None

    @property
    def lost(self) -> list[str]:
        """Messages about parts of the file that are missing from the text."""
        return [*self._lost, *(self.made.lost if self.made else [])]

    def first_bytes(self, count: int) -> bytes:
        """Up to `count` bytes of the text; none if it is a stream or unreadable."""
        if self.path is None or self.refused:
            return b""
        try:
            with self._open() as file:
                return file.read(count)
        except (OSError, UnreadableInput):
            return b""  # reading it will report what is wrong

    def blocks(self, on_bytes: Callable[[bytes], None] | None = None) -> Generator[Block]:
        """Decodes the source from its first byte to its last.

        Args:
            on_bytes: receives the raw bytes, byte order mark included, each exactly once and in
                order, before the block decoded from them.

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
        """Inspects the first bytes: the length of their mark, and the hash of what is before."""
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
            # A path that the user named may be a pipe: wait for it.
            return open_regular(self.path) if self.found else self.path.open("rb")
        return nullcontext(self.stream or sys.stdin.buffer)


def _decode(data: bytes, offset: int, encoding: str, final: bool) -> tuple[Block, int]:
    """Decodes the complete characters in `data`, whose first byte is byte `offset` of the source.

    Returns:
        The block and its number of undecodable places. Unless `final`, the last character of
        `data` may stay undecoded: the block's last offset shows it.
    """
    decoder = codecs.getincrementaldecoder(encoding)("longctx.mark")
    marked = decoder.decode(data, final)
    text, bad = _MARKS.subn("\ufffd", marked)
    starts = offset + np.concatenate([[0], np.cumsum(_widths(marked, encoding))])
    return Block(text, starts.astype(np.int64, copy=False)), bad


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Replaces an error by a character that no text can hold, and that encodes its length."""
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
