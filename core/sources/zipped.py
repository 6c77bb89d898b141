"""Members of zip files as streams that unpack no more than a read asks for.

Also zip files that hold one document: their members by name, within a budget.
"""

import bz2
import io
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import IO

from longctx.core.sources.limits import Share, require_held
from longctx.core.sources.pieces import Stream

LZMA_HEAD = 9  # bytes before an LZMA stream: version, size of the settings, settings
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # their own streams unpack only what is read


@contextmanager
def members_of(
    file: IO[bytes], name: str, share: Share
) -> Iterator[tuple[frozenset[str], Callable[[str], bytes]]]:
    """The names in a zip file, and a function that reads one by name.

    Raises (there and here):
        TooMuch: more would be unpacked than is allowed.
        BadZipFile: it is damaged.
        KeyError: no member has this name.
    """
    with zipfile.ZipFile(file) as zipped:
        times = Counter()  # a book may list a chapter twenty thousand times

        def read(member: str) -> bytes:
            info = zipped.getinfo(member)
            require_held(name, info.file_size)
            times[member] += 1
            share.reach(("member", member), times[member] * info.file_size)
            with open_member(zipped, info) as stream:
                return stream.read(info.file_size)  # read() would unpack beyond that

        yield frozenset(zipped.namelist()), read


def open_member(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Stream:
    """A member's bytes, at most as many as the zip file states, even if there are more.

    Python's own bzip2 and LZMA streams unpack all that they have read at once: a few KB can become
    gigabytes. So the compressed bytes are read and unpacked here.

    Raises (here and while it is read):
        BadZipFile: it is damaged.
        ValueError: Python does not know its compression.
    """
    if info.compress_type in BOUNDED:
        return zipped.open(info)
    if info.compress_type not in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        raise ValueError(f"its compression, number {info.compress_type}, is not known")
    packed = copy(info)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
    del packed.CRC  # it is that of the unpacked bytes
    raw = zipped.open(packed)
    is_lzma = info.compress_type == zipfile.ZIP_LZMA
    return _Member(_lzma(raw, info.file_size) if is_lzma else bz2.BZ2File(raw), raw, info)


class _Member(io.RawIOBase):
    """The unpacked bytes of a bzip2 or LZMA member.

    Args:
        stream: the unpacked bytes, and any beyond its stated size.
        packed: what the stream reads; both are closed with the member.
        info: the zip file's entry for it.
    """

    def __init__(self, stream: Stream, packed: IO[bytes], info: zipfile.ZipInfo):
        self._stream, self._packed = stream, packed
        self._left, self._crc, self._expected = info.file_size, 0, info.CRC

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; EOFError if there are fewer than the zip file states."""
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(wanted)
        if len(data) < wanted:
            raise EOFError("it ends before its end")
        self._left -= wanted
        self._crc = zlib.crc32(data, self._crc)
        if not self._left and self._crc != self._expected:
            raise zipfile.BadZipFile("its CRC-32 is another one")
        return data

    def close(self) -> None:
        self._stream.close()
        self._packed.close()
        super().close()


def _lzma(packed: IO[bytes], size: int) -> lzma.LZMAFile:
    """The stream after its header in zip files; `size` is that of the unpacked bytes."""
    head = packed.read(LZMA_HEAD)
    if len(head) < LZMA_HEAD or head[2:4] != b"\5\0":
        raise ValueError("its LZMA settings are not known")
    rest, lc = divmod(head[4], 9)
    pb, lp = divmod(rest, 5)
    window = min(int.from_bytes(head[5:], "little"), size)  # memory allocated for it
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": window, "lc": lc, "lp": lp, "pb": pb}]
    return lzma.LZMAFile(packed, format=lzma.FORMAT_RAW, filters=filters)
