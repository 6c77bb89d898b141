"""Shared and exclusive locks that die with their process.

Every holder locks a file of its own under `locks/<key>/` and records its identity beside it, so
that others can name it. The lock is the operating system's (filelock): what a killed process leaves
behind locks nothing and is removed. Where the disk is full, the gate itself, which everybody needs,
serves as an exclusive lock. This module knows nothing of what the keys stand for.
"""

import atexit
import errno
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from weakref import WeakSet

from longctx.core.common.errors import Locked
from longctx.core.store.confined import Confined

FOLDER = "locks"
GATE = ".lock"
_SAID = 1 << 12  # limit in bytes for a holder's description of itself
_POLL = 0.2  # seconds between two tries of a lock that we wait for
_GATE_POLL = 0.01
_GATE_WAIT = 60  # seconds; the gate is held for an instant only
_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM} | _FULL


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock, as it described itself."""

    pid: int
    host: str
    exclusive: bool

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, eq=False)
class _Held:
    """A lock that is held: its file, open and locked; None where the gate replaces it.

    A fork copies it; only the process `pid`, which took it, deletes its file.
    """

    key: str
    pid: int
    path: Confined | None = None
    handle: int | None = None


class Locks:
    """The locks of one folder.

    Args:
        folder: a library.
        called: what people call that which a key locks; by default its last part.
    """

    def __init__(self, folder: Path, called: Callable[[str], str] = os.path.basename):
        self._folder, self._called = Confined(folder), called
        self._read: set[_Held] = set()  # shared locks that are held
        _open.add(self)
        self._kept_gate: int | None = None
        self._behind_gate: list[str] = []  # keys that the gate locks

    @contextmanager
    def shared(self, key: str) -> Iterator[None]:
        """Hold a lock that readers share; where nothing can be written, hold none.

        Args:
            key: a relative path that names what is locked.

        Raises:
            Locked: somebody writes.
        """
        try:
            held = self._acquire(key, exclusive=False, wait=0.0)
        except OSError as exc:
            if exc.errno not in _UNWRITABLE:
                raise
            held = None
        if held:
            self._read.add(held)
        try:
            yield
        finally:
            self._release_read(held)

    @contextmanager
    def exclusive(self, key: str, wait: float = 0.0) -> Iterator[None]:
        """Hold a lock exclusively.

        Args:
            key: a relative path that names what is locked.
            wait: seconds to wait for others.

        Raises:
            Locked: somebody still reads or writes after `wait`.
            OSError: the library cannot be written.
        """
        held = self._acquire(key, exclusive=True, wait=wait)
        try:
            yield
        finally:
            self._release(held)

    def release_read(self) -> None:
        """Release all shared locks, at the end of the process; their contexts may end later."""
        for held in [*self._read]:
            self._release_read(held)

    def _release_read(self, held: _Held | None) -> None:
        """Releases a shared lock once; needs no module where it has been released."""
        if held in self._read:
            self._read.discard(held)
            self._release(held)

    def is_held(self, key: str) -> bool:
        """Whether a process holds a lock; False where nothing can be written."""
        if not self._place(key).is_dir():
            return False
        try:
            with self._gate():
                return bool(self._living(key))
        except OSError as exc:
            return exc.errno not in _UNWRITABLE

    def _acquire(self, key: str, exclusive: bool, wait: float) -> _Held:
        until = time.monotonic() + wait
        while True:
            with self._gate() as gate:
                against = [h for h in self._living(key) if exclusive or h.exclusive]
                if not against:
                    return self._enter(key, exclusive, gate)
            if time.monotonic() >= until:
                raise _locked(self._called(key), against)
            time.sleep(_POLL)

    def _enter(self, key: str, exclusive: bool, gate: int) -> _Held:
        try:
            return self._leave_word(key, exclusive)
        except OSError as exc:
            if not exclusive or not full(exc):
                raise
        self._kept_gate = gate  # so that a full disk can be emptied
        self._behind_gate.append(key)
        return _Held(key, os.getpid())

    def _leave_word(self, key: str, exclusive: bool) -> _Held:
        """Locks a new file, and records beside it who holds it."""
        place = self._place(key, make=True)
        holder = Holder(os.getpid(), socket.gethostname(), exclusive)
        path = place / f"{holder.pid}-{secrets.token_hex(4)}.lock"
        handle = path.handle(os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _taken(handle)
            with path.with_suffix(".json").open("xb") as file:
                file.write(json.dumps(asdict(holder)).encode("ascii"))
        except BaseException:  # Ctrl-C too: nobody would ever release the lock
            os.close(handle)
            with suppress(OSError):
                _forget(path)
            raise
        return _Held(key, holder.pid, path, handle)

    def _release(self, held: _Held) -> None:
        if held.path is None or held.handle is None:
            self._behind_gate.remove(held.key)
            if self._kept_gate is not None and not self._behind_gate:
                os.close(self._kept_gate)
                self._kept_gate = None
            return
        if held.pid != os.getpid():  # the parent still holds it
            os.close(held.handle)
            return
        closed = False
        # A library that is gone, or whose disk is full, has no lock worth keeping.
        with suppress(OSError), self._gate():
            os.close(held.handle)
            closed = True
            _forget(held.path)
        if not closed:
            os.close(held.handle)

    def _living(self, key: str) -> list[Holder]:
        mine = [Holder(os.getpid(), socket.gethostname(), True)] if key in self._behind_gate else []
        place = self._place(key)
        files = [p for p in place.iterdir() if p.name.endswith(".lock")] if place.is_dir() else []
        return mine + [holder for path in files if (holder := _holder(path))]

    def _place(self, key: str, make: bool = False) -> Confined:
        """The folder of a key's locks."""
        place = self._folder
        for part in (FOLDER, *key.split("/")):
            place /= part
            if make and not place.is_dir():
                place.mkdir(exist_ok=True, durable=False)
        return place

    @contextmanager
    def _gate(self) -> Iterator[int]:
        """Held to take or release a lock, so that nobody locks a file that is being deleted.

        Raises:
            TimeoutError: others keep holding it.
        """
        if self._kept_gate is not None:
            yield self._kept_gate
            return
        if not self._folder.root.is_dir():  # do not make a deleted library again
            raise FileNotFoundError(errno.ENOENT, "the library has gone", str(self._folder))
        gate = (self._folder / GATE).handle(os.O_RDWR | os.O_CREAT)
        try:
            until = time.monotonic() + _GATE_WAIT
            while not _taken(gate):
                if time.monotonic() >= until:
                    why = "others change its locks"
                    raise TimeoutError(errno.ETIMEDOUT, why, str(self._folder))
                time.sleep(_GATE_POLL)
            yield gate
        finally:
            if gate != self._kept_gate:
                os.close(gate)


_open: WeakSet[Locks] = WeakSet()


@atexit.register
def _release_all_read() -> None:
    """Releases the locks of open documents while Python still has its modules."""
    for locks in [*_open]:
        locks.release_read()


def full(error: OSError) -> bool:
    """Whether a disk, or a user's share of it, has no room."""
    return error.errno in _FULL


def is_held(path: Confined) -> bool:
    """Whether a process has locked a lock file; OSError where it cannot be opened."""
    handle = path.handle(os.O_RDWR)
    try:
        return not _taken(handle)
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    """Locks an open file, unless another has."""
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=False)


def _holder(path: Confined) -> Holder | None:
    """Who holds a lock file; if that process is dead, None, and the file is deleted."""
    try:
        if not is_held(path):
            _forget(path)
            return None
    except FileNotFoundError:
        return None
    try:
        return Holder(**json.loads(path.with_suffix(".json").read_bytes(_SAID)))
    except (OSError, ValueError, TypeError):
        return Holder(0, "an unknown host", True)


def _forget(path: Confined) -> None:
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _locked(name: str, holders: list[Holder]) -> Locked:
    doing = "written" if any(holder.exclusive for holder in holders) else "read"
    who = " and ".join(map(str, holders))
    return Locked(
        f"'{name}' is being {doing} by {who}", remedy="Wait until it is done, then try again"
    )
