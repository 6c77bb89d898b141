"""Output files that a user names: reports, logs, profiles, exports, `--out`.

A file is replaced atomically, by a rename, or stays as it was; a link is followed and stays a link.
Devices and pipes are written to, never replaced. `-` is standard output. New files are accessible
only to their owner, whatever the umask; a replacement gets the old file's mode. Files left behind
by a killed process are deleted when the next one writes to that folder.

The library's own files are written by the store.
"""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from longctx.core.common.errors import LongctxError, UsageError

try:
    import fcntl
except ImportError:  # Windows, where open files cannot be deleted
    fcntl = None

STANDARD = Path("-")
PRIVATE = 0o600  # mode of a new file
PRIVATE_FOLDER = 0o700
PATIENCE = 30.0  # seconds to wait for a pipe's reader
POLL = 0.05  # seconds
LINKS = 40  # links that are followed, as in Linux
REMEDY = "Make room or allow writing there, or name another file."
NO_FOLDER, EXISTS = "there is no folder", "it exists"
_UNFINISHED = re.compile(r"\.longctx-[0-9a-f]{16}\.new")
_FLAGS = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_CLAIM = getattr(os, "O_NOCTTY", 0)  # a terminal does not become this process's controlling one

_kept: list[TextIO] = []  # standard output, while prints go to standard error


@contextmanager
def standard_output_kept() -> Iterator[None]:
    """Inside, standard output carries only what is written to `-`; prints go to standard error."""
    _kept.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


@dataclass(frozen=True)
class Output:
    """A file that a user named.

    Attributes:
        path: as the user named it; `-` is standard output.
        what: its description for errors, such as "the report "; may be empty.
        remedy: what to do if it cannot be written.
    """

    path: Path
    what: str = ""
    remedy: str = REMEDY

    @property
    def is_standard(self) -> bool:
        """Whether this is standard output."""
        return self.path == STANDARD

    def require_writable(self, replace: bool = True) -> None:
        """Refuses, before any work, a path that cannot be written.

        Args:
            replace: an existing file may be replaced.

        Raises:
            UsageError: it is a folder or a socket; its folder is missing or not writable; or it
                exists and `replace` is false.
        """
        try:
            why = self._why_not(replace)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise self._refused(why)

    @contextmanager
    def whole(self, replace: bool = True) -> Iterator[IO[bytes]]:
        """A file to write to; a regular file gets its name if the context ends without an error.

        Args:
            replace: an existing file is replaced.

        Raises:
            UsageError: see `require_writable`.
            LongctxError: it cannot be written; an existing file is unchanged.
            BrokenPipeError: standard output has no reader any more.
        """
        if self.is_standard:
            with self._standard() as out:
                yield out
            return
        self.require_writable(replace)
        with self._told():
            place = _place(self.path)
            if isinstance(place, int) or _is_special(place):
                with open(_opened(place), "wb") as out:
                    yield out
                return
            with _renamed(place) as out:
                yield out
                self.require_writable(replace)  # another process may have created it

    def write(self, data: bytes | str, replace: bool = True) -> None:
        """Writes all of `data`, text as UTF-8. Raises the errors of `whole`."""
        with self.whole(replace) as out:
            out.write(data.encode() if isinstance(data, str) else data)

    @contextmanager
    def appending(self) -> Iterator[IO[bytes]]:
        """A file to append to, unbuffered.

        Raises:
            UsageError, LongctxError: see `whole`.
        """
        if self.is_standard:
            with self._standard() as out:
                yield out
            return
        self.require_writable()
        with self._told():
            place = _place(self.path)
            if isinstance(place, int) or _is_special(place):
                handle = _opened(place)
            else:
                handle = _at_end(place)
        with open(handle, "ab", buffering=0) as out:
            yield out

    @contextmanager
    def _standard(self) -> Iterator[IO[bytes]]:
        out = _kept[-1] if _kept else sys.stdout
        if out is None:
            raise self._refused("standard output is closed")
        out.flush()
        yield out.buffer
        out.buffer.flush()

    def _why_not(self, replace: bool) -> str:
        if self.is_standard:
            return ""
        place = _place(self.path)
        if isinstance(place, int):
            os.fstat(place)  # raises OSError if it is not open
            return ""
        there = _status(place)
        if there is None and not place.parent.is_dir():
            return f"{NO_FOLDER} '{self.path.parent}'"
        if there is not None:
            kind = stat.S_IFMT(there.st_mode)
            if kind in (stat.S_IFDIR, stat.S_IFSOCK):
                return "it is a folder" if kind == stat.S_IFDIR else "it is a socket"
            if kind in (stat.S_IFREG, stat.S_IFBLK) and not replace:
                return EXISTS
            if kind != stat.S_IFREG or _standing(place):
                return "" if os.access(place, os.W_OK) else "writing to it is not allowed"
        if not os.access(place.parent, os.W_OK | os.X_OK):
            return "its folder is not writable"
        return ""

    def _refused(self, why: str) -> UsageError:
        remedy = self.remedy
        if why.startswith(NO_FOLDER):
            remedy = "Make it first, or name another file."
        elif why == EXISTS:
            remedy = "Name another file, or write over it with --replace."
        return UsageError(f"cannot write {self.what}'{self.path}'", why, remedy)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            what = f"cannot write {self.what}'{self.path}'"
            raise LongctxError(what, why, self.remedy) from error


def is_unfinished(name: str) -> bool:
    """Whether a file name is that of an output left unfinished by a killed process."""
    return bool(_UNFINISHED.fullmatch(name))


def make_folder(path: Path) -> None:
    """Makes a folder that the user named; a new one is accessible only to its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(PRIVATE_FOLDER)


# --- resolving paths ---


def _place(path: Path) -> int | Path:
    """A path with all links followed; or the descriptor that it names, as /dev/stdout does.

    A descriptor's file is never replaced: the process that opened it keeps using it.
    """
    at = os.path.join(os.getcwd(), path)
    for _ in range(LINKS):
        folder, name = os.path.split(at)
        folder = os.path.realpath(folder)
        if folder in ("/dev/fd", f"/proc/{os.getpid()}/fd") and name.isdecimal():
            return int(name)
        at = os.path.join(folder, name)
        if not os.path.islink(at):
            return Path(at)
        at = os.path.join(folder, os.readlink(at))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _status(path: Path) -> os.stat_result | None:
    """None if nothing exists there."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _standing(place: Path) -> int | None:
    """The standard output or error descriptor that already writes to this file."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), os.stat(place)):
                return number
    return None


def _is_special(place: Path) -> bool:
    """Whether it is written to in place, not replaced."""
    there = _status(place)
    if there is None:
        return False
    return not stat.S_ISREG(there.st_mode) or _standing(place) is not None


def _opened(place: int | Path) -> int:
    """A handle of a file that is not replaced."""
    if isinstance(place, int):
        return _doubled(place)
    if (number := _standing(place)) is not None:
        return _doubled(number)
    if stat.S_ISFIFO(os.stat(place).st_mode):
        return _opened_pipe(place)
    return os.open(place, _FLAGS | _NO_CLAIM)


def _doubled(number: int) -> int:
    """A duplicate of a descriptor."""
    for stream in (sys.stdout, sys.stderr):  # what they have buffered comes first
        if stream is not None:
            stream.flush()
    return os.dup(number)


def _opened_pipe(path: Path) -> int:
    """A handle of a pipe; waits for its reader, up to PATIENCE."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            handle = os.open(path, _FLAGS | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= until:
                raise OSError(errno.ENXIO, "nobody reads this pipe") from error
            time.sleep(POLL)
        else:
            os.set_blocking(handle, True)
            return handle


# --- files ---


@contextmanager
def _renamed(place: Path) -> Iterator[IO[bytes]]:
    """A file beside this one, which replaces it at the end of the context."""
    _clear(place.parent)
    temporary, file = _begun(place.parent)
    try:
        with file:
            yield file
            file.flush()
            _make_like(file.fileno(), place)
            os.fsync(file.fileno())
            if fcntl is None:  # Windows renames no open file; elsewhere the lock stays to the end
                file.close()
            temporary.replace(place)
        _sync_folder(place.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _begun(folder: Path) -> tuple[Path, IO[bytes]]:
    """A new file, locked by this process while it is open."""
    while True:
        path = folder / f".longctx-{os.urandom(8).hex()}.new"
        flags = _FLAGS | os.O_CREAT | os.O_EXCL
        file = open(os.open(path, flags, PRIVATE), "wb")  # noqa: SIM115 (the caller closes it)
        with suppress(OSError):
            _hold(file.fileno())
        _make_private(file.fileno())
        if path.exists():  # else it was taken for a dead process's file
            return path, file
        file.close()


def _hold(handle: int) -> None:
    """Locks a file; OSError if another process holds it, or the file system has no locks."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(folder: Path) -> None:
    """Deletes unfinished files of processes that have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _UNFINISHED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # it is locked, or another user's
                    _delete_unheld(Path(entry.path))


def _delete_unheld(path: Path) -> None:
    if fcntl is None:
        path.unlink()
        return
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _hold(handle)
        if os.path.samestat(os.fstat(handle), os.lstat(path)):
            path.unlink()
    finally:
        os.close(handle)


def _make_like(handle: int, place: Path) -> None:
    """Gives a new file the mode and owner of the one it replaces; else it is private.

    If the group cannot be kept, no group may read it.
    """
    if fcntl is None:
        return
    before, now, mode = _status(place), os.fstat(handle), PRIVATE
    if before is not None:
        mode = stat.S_IMODE(before.st_mode) & 0o777
        if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
            try:
                os.fchown(handle, before.st_uid, before.st_gid)
            except OSError:
                mode &= ~stat.S_IRWXG
    os.fchmod(handle, mode)


def _at_end(place: Path) -> int:
    """A handle that appends to a file; a new file is private."""
    flags = _FLAGS | os.O_APPEND
    try:
        handle = os.open(place, flags | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        return os.open(place, flags)
    _make_private(handle)
    return handle


def _make_private(handle: int) -> None:
    """Sets the private mode, whatever the umask removed."""
    if fcntl is not None:
        os.fchmod(handle, PRIVATE)


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder may be writable but not readable; Windows opens none
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
