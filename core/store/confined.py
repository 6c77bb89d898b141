"""Paths that cannot lead out of a library: no link is followed.

Anyone who can write to a library can put a link there, to a home folder or a device. So each folder
on the way is opened relative to its parent, and only if it is not a link; work is done through its
handle, so that replacing a name meanwhile changes nothing (openat(2) with O_NOFOLLOW). Where the
system has no such calls (Windows), each step is checked before the path is used. The library's
folder itself, and those above it, may be links: their owner made them.

New files and folders get the rights of the library's own folder: the owner's alone where that is
private, whatever the umask. Knows nothing of what the files hold.
"""

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

BY_HANDLE = hasattr(os, "O_NOFOLLOW") and {os.open, os.stat, os.unlink, os.rename, os.mkdir} <= (
    os.supports_dir_fd
)
_PROC = Path("/proc/self/fd")  # on Linux: a path that leads to an open folder
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_PLAIN = (  # opens a file without waiting: a pipe would wait for its other end
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_FLAGS = {"rb": os.O_RDONLY, "rb+": os.O_RDWR, "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL}
_FIRST = 1 << 16  # bytes per read of a small file
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


@dataclass(frozen=True, order=True)
class Confined:
    """A path inside a library. Its methods are those of `pathlib.Path`, but follow no link.

    Args:
        root: the library's folder, or another trusted one.
        parts: names of nested folders, the last may be a file; none: the root.

    Raises:
        ValueError: a part is not a plain name.
        OSError: in every method; ELOOP where there is a link on the way.
    """

    root: Path
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in self.parts:
            if part in ("", ".", "..") or "/" in part or os.sep in part or "\0" in part:
                raise ValueError(f"{part!r} is no name of a file in a library")

    @classmethod
    def of(cls, path: "Path | Confined") -> "Confined":
        """A confined path as it is; any other folder becomes a root."""
        return path if isinstance(path, Confined) else cls(path)

    def __truediv__(self, name: str) -> "Confined":
        return Confined(self.root, (*self.parts, name))

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def path(self) -> Path:
        """The full path, to show but not to open."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1] if self.parts else self.root.name

    @property
    def inside(self) -> str:
        """The path from the root, for people."""
        return "/".join(self.parts)

    @property
    def parent(self) -> "Confined":
        """The folder that it is in; the root is its own parent."""
        return Confined(self.root, self.parts[:-1])

    def with_suffix(self, suffix: str) -> "Confined":
        """The path beside it with another suffix."""
        return self.parent / Path(self.name).with_suffix(suffix).name

    # --- looking ---

    def stat(self) -> os.stat_result:
        """Its status; of a link itself, not of its target."""
        with self._place() as (at, name):
            return os.stat(name, dir_fd=at, follow_symlinks=not self.parts)

    def exists(self) -> bool:
        """Whether anything has this name, even a link."""
        return self._mode() is not None

    def is_dir(self) -> bool:
        """Whether it is a folder, and not a link to one."""
        return stat.S_ISDIR(self._mode() or 0)

    def is_file(self) -> bool:
        """Whether it is a regular file, and not a link to one."""
        return stat.S_ISREG(self._mode() or 0)

    def is_link(self) -> bool:
        """Whether it is a link, of any kind."""
        try:
            return bool(self.parts) and _is_link(self.stat())
        except OSError as exc:
            if exc.errno in _ABSENT:
                return False
            raise

    def iterdir(self) -> "list[Confined]":
        """The entries of a folder, sorted by name."""
        with self._folder() as folder:
            return [self / name for name in sorted(os.listdir(folder))]

    def inside_each(self, file: str) -> "dict[str, os.stat_result | None]":
        """The status of the file of this name in every folder here; None where there is none.

        One call for each, where ten thousand paths opened step by step would take a second. Only
        looks: what is not a folder has None, and so has a folder that is a link.
        """
        with self._folder() as folder, os.scandir(folder) as entries:
            at = folder if isinstance(folder, int) else None
            return {entry.name: _inside(entry, file, at) for entry in entries}

    def tree(self) -> "Iterator[Confined]":
        """Everything below a folder, recursively; each folder comes before its contents."""
        with suppress(FileNotFoundError, NotADirectoryError):  # deleted meanwhile, or not a folder
            for path in self.iterdir():
                yield path
                if path.is_dir():
                    yield from path.tree()

    # --- reading ---

    def open(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Opens a regular file: "rb", "rb+", or "xb", which makes it.

        Raises:
            OSError: EINVAL where it is a pipe, a device or anything else that is not a file.
        """
        file = io.FileIO(self.handle(_FLAGS[mode]), mode.replace("x", "w"))
        if not buffering:
            return file
        kinds = {"rb": io.BufferedReader, "rb+": io.BufferedRandom, "xb": io.BufferedWriter}
        return kinds[mode](file)

    def handle(self, flags: int) -> int:
        """Opens a regular file, as `os.open`; a new one gets the rights of the library."""
        try:
            with self._place() as (at, name):
                number = os.open(name, flags | _PLAIN, 0o600, dir_fd=at)
        except OSError as exc:
            if exc.errno == errno.ELOOP and self.is_link():
                raise _linked(self) from exc
            raise
        try:
            self.require_file(os.fstat(number))
            if flags & os.O_CREAT:
                self.set_rights(number)
        except BaseException:  # Ctrl-C too: nobody else has the descriptor
            os.close(number)
            raise
        return number

    def read_bytes(self, most: int) -> bytes:
        """A whole file; OSError EFBIG where it has over `most` bytes."""
        with self.open() as file:
            data = file.read(min(most + 1, _FIRST))  # allocating `most` bytes is slow
            if len(data) == _FIRST:
                data += file.read(most + 1 - _FIRST)
        if len(data) > most:
            raise OSError(errno.EFBIG, f"it has over {most:,} bytes", str(self))
        return data

    # --- changing ---

    def mkdir(self, exist_ok: bool = False, durable: bool = True) -> None:
        """Makes a folder, with the rights of the library; a durable one survives a power cut."""
        try:
            with self._place() as (at, name):
                os.mkdir(name, 0o700, dir_fd=at)
        except FileExistsError as exc:
            if self.is_link():
                raise _linked(self) from exc
            if not exist_ok or not self.is_dir():
                raise
            return
        self._open_up()
        if durable:
            self.parent.sync()

    def replace(self, target: "Confined") -> None:
        """Renames it to `target`, replacing what has that name."""
        with self._place() as (at, name), target._place() as (there, new):
            os.replace(name, new, src_dir_fd=at, dst_dir_fd=there)

    def link_to(self, target: "Confined") -> None:
        """Makes a hard link to the same file, or to a link itself."""
        with self._place() as (at, name), target._place() as (there, new):
            if at is None:
                os.link(name, new)
            else:
                os.link(name, new, src_dir_fd=at, dst_dir_fd=there, follow_symlinks=False)

    def unlink(self, missing_ok: bool = False) -> None:
        """Deletes a file, or a link but not its target."""
        try:
            with self._place() as (at, name):
                os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Deletes an empty folder."""
        with self._place() as (at, name):
            os.rmdir(name, dir_fd=at)

    def delete(self) -> None:
        """Deletes a file, a link, or a folder with everything in it."""
        if not self.is_dir():
            self.unlink(missing_ok=True)
            return
        with self._place() as (at, name):
            shutil.rmtree(name, dir_fd=at)

    def sync(self) -> None:
        """Makes creations, renames and deletions in a folder survive a power cut."""
        if os.name == "nt":  # Windows cannot open a folder
            return
        handle = self._open_folder() if BY_HANDLE else os.open(self._checked(), _FOLDER)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def chmod(self, mode: int) -> None:
        """Sets the rights of our own file or folder, never of a link; a setgid bit stays."""
        if not BY_HANDLE:
            os.chmod(self._checked(), mode)
            return
        flags = _PLAIN | os.O_RDONLY
        with self._place() as (at, name):
            number = os.open(name, flags, dir_fd=at)
        try:
            os.fchmod(number, mode | (os.fstat(number).st_mode & stat.S_ISGID))
        finally:
            os.close(number)

    @contextmanager
    def real(self) -> Iterator[Path]:
        """A plain path, for libraries that take nothing else; valid while the context lasts.

        On Linux it begins at an open folder, so that no link can come between; elsewhere each
        step was checked a moment ago.
        """
        with self._place() as (at, name):
            if at is not None and _PROC.is_dir():
                yield _PROC / str(at) / name
            else:
                yield Path(self._checked())

    # --- the way there ---

    @contextmanager
    def _place(self) -> Iterator[tuple[int | None, str]]:
        """Its parent folder, open, and its name there; or None and its path."""
        if not self.parts:
            yield None, str(self.root)
        elif not BY_HANDLE:
            self.parent._checked()
            yield None, str(self.path)
        else:
            folder = self.parent._open_folder()
            try:
                yield folder, self.name
            finally:
                os.close(folder)

    @contextmanager
    def _folder(self) -> Iterator[int | str]:
        """This folder, open; or its path."""
        if not BY_HANDLE:
            yield self._checked()
            return
        folder = self._open_folder()
        try:
            yield folder
        finally:
            os.close(folder)

    def _open_folder(self) -> int:
        """A handle of this folder, reached step by step."""
        handle = os.open(self.root, _FOLDER)
        for number, part in enumerate(self.parts):
            try:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as exc:
                place = Confined(self.root, self.parts[: number + 1])
                if exc.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and place.is_link():
                    raise _linked(place) from exc
                raise
            finally:
                os.close(handle)
            handle = inner
        return handle

    def _checked(self) -> str:
        """Its path, on which there is currently no link."""
        for count in range(1, len(self.parts) + 1):
            place = Confined(self.root, self.parts[:count])
            with suppress(FileNotFoundError):
                if _is_link(os.lstat(place.path)):
                    raise _linked(place)
        return str(self.path)

    def _mode(self) -> int | None:
        """Its kind and rights; None where there is nothing."""
        try:
            return self.stat().st_mode
        except OSError as exc:
            if exc.errno in _ABSENT:
                return None
            raise

    def require_file(self, status: os.stat_result | None = None) -> None:
        """OSError where it is not a regular file, or was not when it had this status."""
        if not stat.S_ISREG((status or self.stat()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(self))

    def _open_up(self) -> None:
        """Gives a new folder the rights of the library."""
        wanted = self._rights(0o700, 0o777)
        if os.name == "nt" or stat.S_IMODE(self.stat().st_mode) & 0o777 == wanted:
            return
        with suppress(PermissionError):
            self.chmod(wanted)
            return
        with self._place() as (at, name):  # the umask has removed our own rights
            os.chmod(name, wanted, dir_fd=at)

    def set_rights(self, handle: int) -> None:
        """Gives this open file the rights of the library."""
        wanted = self._rights(0o600, 0o666)
        if hasattr(os, "fchmod") and stat.S_IMODE(os.fstat(handle).st_mode) & 0o777 != wanted:
            with suppress(PermissionError):  # another user's, or a disk without rights
                os.fchmod(handle, wanted)

    def _rights(self, least: int, most: int) -> int:
        """The rights of the library's folder, limited to these bounds."""
        return least | (stat.S_IMODE(os.stat(self.root).st_mode) & most)


def _inside(entry: os.DirEntry, file: str, at: int | None) -> os.stat_result | None:
    """The status of a file in a folder of the open folder `at`; None: of its path."""
    try:
        if not entry.is_dir(follow_symlinks=False):
            return None
        path = f"{entry.path if at is None else entry.name}/{file}"
        return os.stat(path, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None


def _is_link(status: os.stat_result) -> bool:
    """Whether it leads elsewhere; Windows has junctions as well as links."""
    point = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_file_attributes", 0) & point)


def _linked(place: Confined) -> OSError:
    return OSError(errno.ELOOP, f"'{place}' is a link, and none is followed inside a library")
