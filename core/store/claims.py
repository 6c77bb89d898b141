"""Claims: who writes a document, for hosts that do not see one another's locks.

A lock (`locks.py`) dies with its process, but on some shared file systems holds among the processes
of one host alone. So whoever writes a document, under its lock, also claims it: by a file
`locks/unfinished/<name>/<number>.claim`, which says who it is and is touched every few seconds. A
claim that has not been touched for a minute is stale: another writer makes the next number, by an
operation that only one can win, and deletes the old one. The number is a fencing token: a writer
that was only slow finds, before it saves or publishes anything, that its claim is no longer there.

Ages are differences of times that the file system gave, so that clocks of hosts do not matter.
"""

import errno
import json
import os
import re
import secrets
import socket
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from longctx.core.common.errors import Locked, LongctxError
from longctx.core.store.confined import Confined
from longctx.core.store.durable import storing
from longctx.core.store.locks import FOLDER, GATE, full

BEAT = 10.0  # seconds between two signs of life
STALE = 60.0  # seconds without one after which a claim is taken over
WRITTEN = 1.0  # seconds after which one that says nothing was left so
PLACE = "unfinished"
ENDING = ".claim"
_NUMBERED = re.compile(r"([0-9]{1,9})\.claim")
_SAID = 1 << 12  # limit in bytes for what a claim says


@dataclass(frozen=True)
class Claimant:
    """A process that writes a document, as it described itself.

    Attributes:
        pid, host: of it.
        mark: random; tells it from others of the same number.
    """

    pid: int
    host: str
    mark: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Claims:
    """The claims in one library. Whoever takes one holds the lock `unfinished/<name>`.

    Args:
        library: its folder.
        called: what people call the document of a lock's key.
    """

    def __init__(self, library: Path, called: Callable[[str], str] = os.path.basename):
        self._library, self._called = Confined(library), called

    def require_free(self, name: str) -> None:
        """Refuses a document that a living process of another host, or of ours, writes.

        Raises:
            Locked: names that process.
            OSError: the library cannot be read or written.
        """
        self._require_left(name, self._numbered(name))

    @contextmanager
    def taken(self, name: str) -> "Iterator[Callable[[], None]]":
        """Holds the claim of a document, and shows signs of life.

        Yields:
            A check, to be called before anything is saved or published: Locked where another
            process has taken the claim over, LongctxError where the claim cannot be read.

        Raises:
            Locked: a living process has the claim.
            LongctxError: no thread can be started to show signs of life.
            OSError: the library cannot be written, other than for a full disk: then there is no
                claim, and no room for what would be written either.
        """
        older = self._numbered(name)  # what is judged here is what decides the next number
        judged = {file: _said(file) for _, file in older}
        self._require_left(name, older)
        me = Claimant(os.getpid(), socket.gethostname(), secrets.token_hex(8))
        try:
            file = self._made(name, me, older[-1][0] + 1 if older else 1, judged)
        except OSError as error:
            if not full(error):
                raise
            yield lambda: None
            return
        ended = threading.Event()
        try:
            _begin(file, me, ended)
            yield lambda: self._check(name, file, me)
        finally:
            ended.set()
            with suppress(OSError):
                if _said(file) == me:
                    file.unlink(missing_ok=True)

    def documents(self) -> list[str]:
        """The folders' names of all documents that may have claims."""
        place = self._library / FOLDER / PLACE
        return [path.name for path in place.iterdir()] if place.is_dir() else []

    def left(self, name: str) -> list[Confined]:
        """Claims of a document that have become stale, or are older than another one.

        Whoever holds its lock may still go on with a stale one.
        """
        files = [file for _, file in self._numbered(name)]
        return [file for file in files if file != files[-1] or not self._living(file)]

    def _require_left(self, name: str, found: list[tuple[int, Confined]]) -> None:
        if found and (by := self._living(found[-1][1])):
            raise self._refused(name, by)

    def _made(
        self, name: str, me: Claimant, number: int, judged: dict[Confined, Claimant | None]
    ) -> Confined:
        """A new claim with a number; older ones are deleted if they are those that were judged.

        While this process was slow, others may have taken over, ended, and begun with 1 again; or
        they took it over, because it said nothing yet.
        """
        file = self._folder(name) / f"{number}{ENDING}"
        try:
            new = file.open("xb")  # which one process alone can do
        except FileExistsError as error:
            raise self._refused(name, _said(file)) from error
        try:
            with new:
                new.write(json.dumps(vars(me)).encode("ascii"))
            said = {old: _said(old) for old in judged}
            if newer := [by for old, by in said.items() if by and by != judged[old]]:
                raise self._refused(name, newer[-1])
            newest = (self._numbered(name) or [(0, file)])[-1][1]
            if newest != file or _said(file) != me:  # it said nothing for too long
                raise self._refused(name, _said(newest))
        except BaseException:  # Ctrl-C too: the claim is taken back, and the error goes on
            with suppress(OSError):
                if _said(file) in (None, me):
                    file.unlink(missing_ok=True)
            raise
        for old in judged:
            old.unlink(missing_ok=True)
        return file

    def _check(self, name: str, file: Confined, me: Claimant) -> None:
        """Raises Locked where the claim is no longer ours, LongctxError where that is unknown."""
        with storing(file):
            said = _said(file)
            newest = (self._numbered(name) or [(0, None)])[-1][1]
            if said == me and newest == file:
                with suppress(FileNotFoundError):  # taken over in this instant
                    _touch(file)  # now, since the process may just have been stopped for long
                    return
            if not self._library.is_dir():
                return  # the library is gone: writing into it says so
            by = newest and _said(newest)
        raise Locked(
            f"'{self._called(f'{PLACE}/{name}')}' is no longer written here",
            f"{by or 'another process'} has taken it over, since this process gave no sign of life "
            f"for {STALE:.0f} s",
            "Nothing more was changed; leave it to that one, or run the same command again later",
        )

    def _living(self, file: Confined) -> Claimant | None:
        """Who holds a claim; None: nobody any more.

        A process of this host whose lock we could take is dead, or else its files were deleted by a
        host that does not see our locks.
        """
        by = _when_whole(file)
        if by is None or (by.host == socket.gethostname() and not _may_live(by.pid)):
            return None
        age = self._age(file)
        return None if age is None or age > STALE else by

    def _age(self, file: Confined) -> float | None:
        """Seconds since a claim was touched, by the file system's clock; None: it is gone."""
        gate = self._library / GATE  # which everybody who writes here may touch
        try:
            os.close(gate.handle(os.O_RDWR | os.O_CREAT))
            _touch(gate)
            return (_touched(gate) - _touched(file)) / 1e9
        except FileNotFoundError:
            return None

    def _refused(self, name: str, by: Claimant | None) -> Locked:
        return Locked(
            f"'{self._called(f'{PLACE}/{name}')}' is being written by {by or 'another process'}",
            remedy=f"Wait until it is done, or, if it has died, for {STALE:.0f} s; then try again",
        )

    def _folder(self, name: str) -> Confined:
        return self._library / FOLDER / PLACE / name

    def _numbered(self, name: str) -> list[tuple[int, Confined]]:
        """All claims of a document with their numbers, the newest last."""
        try:
            files = list(self._folder(name).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        matched = [(_NUMBERED.fullmatch(file.name), file) for file in files]
        found = [(int(match[1]), file) for match, file in matched if match]
        return sorted(found, key=lambda each: each[0])


def _begin(file: Confined, me: Claimant, ended: threading.Event) -> None:
    """Starts to show signs of life; LongctxError where that is impossible.

    Not by a Thread: its start waits, for ever, for a thread that finds no memory.
    """
    try:
        start_new_thread(_beat, (file, me, ended))
    except RuntimeError as error:
        raise LongctxError(
            f"cannot keep the claim '{file}'",
            f"no thread can be started to renew it ({error})",
            "End other programs, or allow more memory or processes (`ulimit -u`), and try again",
        ) from error


def _beat(file: Confined, me: Claimant, ended: threading.Event) -> None:
    """Touches a claim until it is released; what fails is seen when something is saved.

    A claim of its number that another process has made since is that one's to keep alive.
    """
    while not ended.wait(BEAT):
        with suppress(OSError):
            if _said(file) == me:
                _touch(file)


def _touch(file: Confined) -> None:
    """Sets the modification time to the file system's now."""
    with file.real() as path:
        os.utime(path)


def _touched(file: Confined) -> int:
    """The modification time in ns; opened, since a network file system then asks its server."""
    with file.open(buffering=0) as opened:
        return os.fstat(opened.fileno()).st_mtime_ns


def _said(file: Confined) -> Claimant | None:
    """What a claim says; None where it is gone, or not whole.

    Raises:
        OSError: it is there and cannot be read, which does not mean that it is another's.
    """
    try:
        told = Claimant(**json.loads(file.read_bytes(_SAID)))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return told if isinstance(told.pid, int) and isinstance(told.host, str) else None


def _when_whole(file: Confined) -> Claimant | None:
    """What a claim says, which may be written just now; None where it is gone or says nothing.

    Nothing for a second is what a power cut left. A writer that was stopped in that instant, or
    whose file system is so slow, finds before it changes anything that its claim was taken over.
    """
    until = time.monotonic() + WRITTEN
    while (by := _said(file)) is None and file.exists() and time.monotonic() < until:
        time.sleep(WRITTEN / 20)
    return by


def _may_live(pid: int) -> bool:
    """Whether a process of this host, other than ours, may be alive."""
    if os.name == "nt":  # where looking with a signal would end it; its lock could be taken
        return False
    if pid == os.getpid():  # ours would have its lock, so that is an earlier one of this number
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError as error:
        return error.errno == errno.EPERM
    return True
