"""Reads a text source of any size as decoded blocks, each character with its byte offset.

Bytes come in 1 MiB pieces and leave as text, so memory does not grow with the source. Nothing
is normalised: line ends stay as they are, bytes that cannot be decoded become U+FFFD and are
counted, and `raw[start:end].decode(encoding, "replace")` gives back the text between any two
characters. Knows nothing of tokenizers, models or where the bytes are kept.
"""

import codecs
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from charset_normalizer import from_bytes

from longctx.core.encodings import BOMS, LEGACY
from longctx.core.errors import UnreadableInput, UsageError

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
    """

    name: str
    path: Path | None
    stream: BinaryIO | None = None
    size: int = field(default=0, init=False)
    sha256: str = field(default="", init=False)
    undecodable: int = field(default=0, init=False)
    encoding: str = field(default="", init=False)

    @property
    def expected_size(self) -> int | None:
        """The file's size in bytes, known before it is read; None for a stream."""
        return self.path.stat().st_size if self.path and self.path.is_file() else None

    def blocks(self, on_bytes: Callable[[bytes], None] | None = None) -> Iterator[Block]:
        """Decodes the source from its first byte to its last.

        Args:
            on_bytes: receives the raw bytes, byte order mark included, each exactly once and in
                order, before the block that they are decoded in.

        Raises:
            UnreadableInput: the source is empty, binary, in no known encoding or unreadable.
        """
        reads = self._reads()
        data = next(reads)
        self.encoding, offset = _detect(data, self.name)
        self.size = self.undecodable = 0
        digest, undecoded = hashlib.sha256(), data[offset:]
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
            if block.text:
                yield block

    def _reads(self) -> Iterator[bytes]:
        """The source's bytes in pieces, then one empty piece."""
        try:
            with self._open() as file:
                while data := file.read(READ_BYTES):
                    yield data
        except OSError as error:
            raise UnreadableInput(
                f"cannot read '{self.name}'",
                error.strerror or str(error),
                "Check the file and its permissions, or leave it out.",
            ) from error
        yield b""

    def _open(self) -> AbstractContextManager[BinaryIO]:
        if self.path:
            return self.path.open("rb")
        return nullcontext(self.stream or sys.stdin.buffer)


def open_sources(paths: Sequence[str]) -> list[Source]:
    """Names the sources of a command and checks them before any work is done.

    Args:
        paths: file names; "-" is standard input.

    Raises:
        UsageError: a path does not exist or is a folder, or standard input is named twice.
    """
    if list(paths).count("-") > 1:
        raise UsageError("cannot read '-' twice", "standard input ends once", "Name it once.")
    return [_open_source(path) for path in paths]


def _open_source(name: str) -> Source:
    if name == "-":
        return Source("stdin", None)
    if os.path.isdir(name):
        raise UsageError(
            f"cannot read '{name}'", "folders are not read yet", "Name the files in it."
        )
    if not os.path.exists(name):  # unlike Path.exists, never raises
        raise UsageError(f"cannot read '{name}'", "no such file", "Check the path.")
    return Source(name, Path(name))


def _detect(data: bytes, name: str) -> tuple[str, int]:
    """Python's name of the encoding, and the length of the byte order mark in bytes."""
    marked = ((mark, encoding) for mark, encoding in BOMS if data.startswith(mark))
    mark, encoding = next(marked, (b"", ""))
    if len(data) == len(mark):
        raise UnreadableInput(f"cannot read '{name}'", "it is empty", "Leave it out.")
    if not encoding and b"\0" in data:
        raise UnreadableInput(
            f"cannot read '{name}'",
            "it is binary: there are zero bytes in its first MiB and no UTF-16 or UTF-32 mark",
            "Convert it to text, or leave it out.",
        )
    if not encoding:
        encoding = "utf-8" if _nearly_utf8(data) else _guess(data, name)
    return encoding, len(mark)


def _nearly_utf8(data: bytes) -> bool:
    """Whether the errors are rare, or fewer than the characters that only UTF-8 would give."""
    ends_here = len(data) < READ_BYTES  # otherwise its last character may be cut short
    text, _ = codecs.utf_8_decode(data, "replace", ends_here)
    bad = text.count("\ufffd") - data.count("\ufffd".encode())
    valid = len(text) - len(text.encode("ascii", "ignore")) - bad
    return bad <= valid or bad * 1000 <= len(data)


def _guess(data: bytes, name: str) -> str:
    whole_lines = data[: data.rfind(b"\n") + 1] or data
    matches = from_bytes(whole_lines, cp_isolation=list(LEGACY))
    best = matches.best()
    if best is None:
        raise UnreadableInput(
            f"cannot read '{name}'", "its encoding is not known", "Convert it to UTF-8."
        )
    equal = [m for m in matches if m.chaos <= best.chaos and m.coherence >= best.coherence]
    names = {encoding for match in equal for encoding in match.could_be_from_charset}
    return min(names.intersection(LEGACY), key=LEGACY.index)


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
