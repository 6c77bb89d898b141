"""Compressed files (gzip, bzip2, xz, Zstandard) as streams that count the bytes read.

Knows nothing of archives. What a library raises for a damaged file becomes UnreadableInput.
"""

import bz2
import errno
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.parsers.expat import ExpatError

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources.extra import require
from longctx.core.sources.limits import Share
from longctx.core.sources.pieces import Readable, Stream

BLOCK = 1 << 20
XML_NO_MEMORY = 1  # expat's code for "out of memory"
ZST_BYTES = 1 << 10  # given to the library at once; they may unpack to 32,000 times as much
# What the libraries raise for damaged files; RuntimeError also for encrypted ones.
DAMAGE = (OSError, EOFError, ValueError, LookupError, RuntimeError, zlib.error, lzma.LZMAError)
DAMAGE += (zipfile.BadZipFile, tarfile.TarError, ExpatError)


@contextmanager
def damage_told(name: str) -> Iterator[None]:
    """Turns whatever libraries raise for a damaged file into one error.

    Raises:
        UnreadableInput: an error in DAMAGE was raised.
        MemoryError: memory ran out, whatever the library calls it.
    """
    try:
        yield
    except DAMAGE as error:
        no_memory = getattr(error, "errno", None) == errno.ENOMEM
        if no_memory or (isinstance(error, ExpatError) and error.code == XML_NO_MEMORY):
            raise MemoryError from error
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableInput(
            f"cannot read '{name}'", f"it is damaged, or not what its name says ({why})"
        ) from error


class Counted(io.RawIOBase):
    """A stream that counts its bytes, fills every read, and reports damage as one error.

    Args:
        stream: the stream to read.
        name: as users know it.
        share: counts the bytes, as part `packed`; None to count nowhere.
        end: bytes after which it ends, even if there are more.
    """

    def __init__(
        self,
        stream: Readable,
        name: str,
        share: Share | None = None,
        end: int | None = None,
    ):
        self._stream, self._name, self._share = stream, name, share
        self._end, self._done = end, 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, or all that remain.

        Raises:
            UnreadableInput: the stream is damaged, or holds too much.
        """
        pieces, wanted = [], size if size >= 0 else None
        if self._end is not None:
            left = self._end - self._done
            wanted = left if wanted is None else min(wanted, left)
        while wanted is None or wanted > 0:
            with damage_told(self._name):
                piece = self._stream.read(BLOCK if wanted is None else min(BLOCK, wanted))
            if not piece:
                break
            self._done += len(piece)
            if self._share:
                self._share.reach("packed", self._done)
            pieces.append(piece)
            wanted = None if wanted is None else wanted - len(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        """See RawIOBase."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def unpacking(raw: Stream, how: str, name: str) -> Stream:
    """A decompressed stream, which the caller closes; `raw` stays open.

    Args:
        raw: the compressed bytes.
        how: gz, bz2, xz or zst.
        name: as users know the file.

    Raises:
        UnreadableInput: zst, and its library is missing.
    """
    if how == "gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if how == "zst":
        require("zstandard", name)
        return _Zstandard(raw)
    return {"bz2": bz2.BZ2File, "xz": lzma.LZMAFile}[how](raw)


class _Zstandard(io.RawIOBase):
    """The frames of a file in order; unlike the library's reader, it reports truncation."""

    def __init__(self, raw: Readable):
        self._raw, self._frame, self._rest, self._out = raw, None, b"", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; ValueError for damage, EOFError for truncation."""
        while not self._out and (data := self._rest or self._raw.read(ZST_BYTES)):
            self._decompress(data)
        if not self._out and self._frame:
            raise EOFError("it ends before its end")
        data, self._out = self._out[:size], self._out[size:]
        return data

    def _decompress(self, data: bytes) -> None:
        import zstandard

        self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        try:
            self._out, self._rest = self._frame.decompress(data), b""
        except zstandard.ZstdError as error:  # it shares no base class with the others
            raise ValueError(str(error)) from error
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, None
