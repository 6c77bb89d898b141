"""Zip and tar archives, nested ones included: each member is a source of its own.

Members are read in archive order, so that a compressed archive is unpacked only once, from start
to end. Nothing is written under a member's name. Names that would lead out of a folder are refused
all the same: unpacking such an archive elsewhere would be dangerous.
"""

import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Protocol

from longctx.core.common.errors import UnreadableInput
from longctx.core.sources import formats
from longctx.core.sources.detect import NotText
from longctx.core.sources.limits import DIGITS, HEADER, NAME, TooMuch
from longctx.core.sources.made import Opener, Original, spooled, unpacked
from longctx.core.sources.naming import is_hidden, kind_of, layers
from longctx.core.sources.packed import Counted, damage_told
from longctx.core.sources.pieces import Readable, Stream
from longctx.core.sources.zipped import open_member

_DRIVE = re.compile(r"[A-Za-z]:")
_LENGTH = re.compile(rb"(\d{1,9}) ")
_DIGITS = re.compile(rb"\d{%d}" % (DIGITS + 1))
BEHIND = 16  # empty reads in a row after which reading stops
_SHOWN = 200  # characters shown of a name that is refused for its length


@dataclass(frozen=True)
class Member:
    """A file in an archive.

    Attributes:
        number: its index in the archive.
        name: its path in the archive.
        size: in bytes, as the archive states it.
        refused: why it is not read; None if it is.
    """

    number: int
    name: str
    size: int
    refused: UnreadableInput | None


class OpenArchive(Protocol):
    """An open archive."""

    def members(self) -> Iterator[Member]:
        """All files, in order; can be iterated once."""
        ...

    def open(self, number: int) -> Stream | None:
        """A file; None if the archive must be reopened to reach it."""
        ...


class Zip:
    """A seekable zip file."""

    def __init__(self, file: IO[bytes], opened: ExitStack):
        self._zip = opened.enter_context(zipfile.ZipFile(file))
        self._infos = self._zip.infolist()

    def members(self) -> Iterator[Member]:
        """All files."""
        for number, info in enumerate(self._infos):
            why = None
            if stat.S_ISLNK(info.external_attr >> 16):
                why = NotText(f"'{info.filename}' is not read", "it is a link")
            elif info.flag_bits & 1:
                why = UnreadableInput(f"cannot read '{info.filename}'", "it is encrypted")
            if not info.is_dir():
                yield Member(number, info.filename, info.file_size, why)

    def open(self, number: int) -> Stream | None:
        """A file."""
        return open_member(self._zip, self._infos[number])


_TarInfo: Any = tarfile.TarInfo  # its methods overridden below are undocumented


class _Header(_TarInfo):
    """A tar header whose continuations are bounded before Python parses them."""

    def _proc_pax(self, archive: Any) -> tarfile.TarInfo:
        if self.size > HEADER:
            raise tarfile.ReadError(f"a header is longer than {HEADER:,} bytes")
        data = archive.fileobj.read(self._block(self.size))
        _require_records(data[: self.size])
        archive.fileobj = _Once(data, archive)
        return super()._proc_pax(archive)

    def _proc_gnulong(self, archive: Any) -> tarfile.TarInfo:
        left, kept = self._block(self.size), b""
        while left:  # a longer one is read to its end, then refused as a name
            data = archive.fileobj.read(min(left, HEADER))
            if not data:
                raise tarfile.ReadError("it ends in a header")
            kept, left = kept or data, left - len(data)
        archive.fileobj = _Once(kept, archive)
        return super()._proc_gnulong(archive)


class _Once:
    """Returns data already read from an archive to the next read of it."""

    def __init__(self, data: bytes, archive: Any):
        self._data, self._archive, self._file = data, archive, archive.fileobj

    def read(self, size: int) -> bytes:
        """The data that was read."""
        self._archive.fileobj = self._file
        return self._data


def _require_records(data: bytes) -> None:
    """Refuses a malformed pax header, in which Python would look for records forever.

    Raises:
        ReadError: its records are not contiguous, or it has thousands of digits in a row.
    """
    at = 0
    while at < len(data) and data[at]:
        length = _LENGTH.match(data, at)
        end = at + int(length[1]) if length else 0
        record = data[length.end() : end] if length and end <= len(data) else b""
        if not record.endswith(b"\n") or b"=" not in record[1:]:
            raise tarfile.ReadError("a pax header is malformed")
        at = end
    if _DIGITS.search(data):
        raise tarfile.ReadError(f"a pax header has over {DIGITS:,} digits in a row")


class _Ending:
    """A stream that reports its end: tarfile would read past it, as far as a header claims."""

    def __init__(self, file: Readable):
        self._file, self._behind = file, 0

    def read(self, size: int) -> bytes:
        """Reads from the stream; ReadError after more than BEHIND empty reads in a row."""
        data = self._file.read(size)
        self._behind = 0 if data else self._behind + 1
        if self._behind > BEHIND:
            raise tarfile.ReadError("unexpected end of data")
        return data


class Tar:
    """A tar stream, read forwards only."""

    def __init__(self, file: Readable, opened: ExitStack):
        forwards: Any = _Ending(file)  # in this mode tarfile only reads
        # `members`, the list that Python keeps of all past members, is not documented.
        self._tar: Any = opened.enter_context(
            tarfile.TarFile.open(fileobj=forwards, mode="r|", tarinfo=_Header)
        )
        self._at, self._taken = -1, False
        self._info: tarfile.TarInfo | None = None

    def members(self) -> Iterator[Member]:
        """All files."""
        while info := self._next():
            why = None
            if info.isreg() and info.issparse():
                why = UnreadableInput(f"cannot read '{info.name}'", "it has holes (a sparse file)")
            elif not info.isreg():
                kind = "a link" if info.issym() or info.islnk() else "a special file"
                why = NotText(f"'{info.name}' is not read", f"it is {kind}")
            if not info.isdir():
                yield Member(self._at, info.name, info.size, why)

    def open(self, number: int) -> Stream | None:
        """A file; None if the stream is already past it."""
        while self._at < number and self._next():
            pass
        if self._at != number or self._taken or self._info is None:
            return None
        self._taken = True
        return self._tar.extractfile(self._info)

    def _next(self) -> tarfile.TarInfo | None:
        self._info, self._taken = self._tar.next(), False
        self._tar.members.clear()  # it would keep all past members
        self._at += 1
        return self._info


class Archive:
    """An archive whose members are opened one after the other.

    Args:
        original: the file on disk that it is, or is in.
        name: as it is cited.
        opener: opens its bytes as a seekable stream.
        kind, how: zip or tar, and its compressions.
        depth: number of archives and compressions around it, its own included.
    """

    def __init__(
        self,
        original: Original,
        name: str,
        opener: Callable[[], AbstractContextManager[IO[bytes]]],
        kind: str,
        how: list[str],
        depth: int,
    ):
        self.original, self.name, self.depth = original, name, depth
        self.kind, self.how, self._opener = kind, how, opener
        self._share = original.budget.share()
        self._opened = ExitStack()
        self._reader: OpenArchive | None = None

    def members(self) -> Iterator[Member]:
        """All files in it; each may be opened before the next is requested."""
        budget = self.original.budget
        budget.enter(self.depth)
        try:
            with damage_told(self.name):
                for member in self._open_anew().members():
                    budget.add_member(member.name[:NAME])
                    if self.kind == "zip":  # a tar's members count when the tar is unpacked
                        self._share.reach(member.number, member.size)
                    yield member
        finally:
            self.close()

    @contextmanager
    def open(self, number: int) -> Iterator[Stream]:
        """A member's bytes."""
        stream = self._reader.open(number) if self._reader else None
        if stream is None:
            stream = self._open_anew().open(number)
        if stream is None:
            raise UnreadableInput(f"cannot read '{self.name}'", "it has changed")
        with stream:
            yield stream

    @contextmanager
    def open_spooled(self, number: int) -> Iterator[IO[bytes]]:
        """A member's bytes as a seekable file."""
        with self.open(number) as stream, spooled(stream) as file:
            yield file

    def close(self) -> None:
        """Closes the archive; it can be opened again."""
        self._reader = None
        self._opened.close()

    def __del__(self) -> None:
        self.close()

    def _open_anew(self) -> OpenArchive:
        self.close()
        file, packed = self._opened.enter_context(self._opener()), None
        if self.how:
            stream = unpacked(file, self.how, self.name, self._opened)
            packed = Counted(stream, self.name, self._share)
        if self.kind == "zip":
            file = self._opened.enter_context(spooled(packed)) if packed else file
            self._reader = Zip(file, self._opened)
        else:
            self._reader = Tar(packed or file, self._opened)
        return self._reader


@dataclass(frozen=True)
class MemberInfo:
    """A member of an archive, and how to read it.

    Attributes:
        archive: the archive that holds it.
        number, size: see `Member`.
        name: its path there, without `./`; cut if too long.
        how, form: its compressions, outermost first, and the format it is converted from.
        inner: the archive that it is itself; its members follow.
        refused: why it is not read; None if it is.
    """

    archive: Archive
    number: int
    name: str
    size: int = 0
    how: tuple[str, ...] = ()
    form: str = ""
    inner: Archive | None = None
    refused: UnreadableInput | None = None


def found_in(archive: Archive, hidden: bool, raw: bool) -> Iterator[MemberInfo]:
    """An archive's members, those of nested archives included.

    Args:
        archive: the archive.
        hidden, raw: see `Rules`.

    Raises:
        TooMuch: the file on disk holds more than may be unpacked.
        UnreadableInput: the archive is damaged.
    """
    empty = True
    for member in archive.members():
        empty = False
        name = member.name.removeprefix("./")
        error = _too_long(name) or _unsafe(name) or member.refused
        if error:
            name = name if len(name) <= NAME else name[:_SHOWN] + "..."
            yield _refused(archive, member, name, error)
        elif not is_hidden(name, hidden):
            yield from _found(archive, name, member, hidden, raw)
    if empty:
        raise NotText(f"cannot read '{archive.name}'", "there are no files in it")


def _found(
    archive: Archive, name: str, member: Member, hidden: bool, raw: bool
) -> Iterator[MemberInfo]:
    """A member, or the members inside it."""
    stem, how = layers(name)
    kind = kind_of(stem)
    if kind:
        inner = inside(archive, member.number, f"{archive.name}/{name}", kind, how)
        yield MemberInfo(archive, member.number, name, how=tuple(how), inner=inner)
        try:
            yield from list(found_in(inner, hidden, raw))
        except TooMuch:
            raise
        except UnreadableInput as error:
            yield _refused(archive, member, name, error)
        return
    archive.original.budget.enter(archive.depth + len(how))
    form = "" if raw else formats.of(stem)
    yield MemberInfo(archive, member.number, name, member.size, tuple(how), form)


def inside(archive: Archive, number: int, cited: str, kind: str, how: list[str]) -> Archive:
    """A member, as an archive."""
    opener = partial(archive.open_spooled, number)
    return Archive(archive.original, cited, opener, kind, how, archive.depth + len(how) + 1)


def opener_of(archive: Archive, number: int, how: list[str]) -> Opener:
    """A function that opens a member, seekable if compressed."""
    return partial(archive.open_spooled if how else archive.open, number)


def _refused(archive: Archive, member: Member, name: str, error: UnreadableInput) -> MemberInfo:
    told = type(error)(f"cannot read '{archive.name}/{name}'", error.why, error.remedy)
    return MemberInfo(archive, member.number, name, refused=told)


def _too_long(name: str) -> UnreadableInput | None:
    """The refusal of a member whose name is longer than any file's, or None."""
    if len(name) <= NAME:
        return None
    why = f"its name has {len(name):,} characters, and over {NAME:,} are not read"
    return UnreadableInput(f"cannot read '{name[:_SHOWN]}...'", why)


def _unsafe(name: str) -> UnreadableInput | None:
    """The refusal of a member whose name no file in a folder can have, or None."""
    parts = re.split(r"[/\\]", name)
    if name[:1] in ("/", "\\") or _DRIVE.match(name) or ".." in parts or "\0" in name or not name:
        return UnreadableInput(f"cannot read '{name}'", "its path leads out of the archive")
    return None
