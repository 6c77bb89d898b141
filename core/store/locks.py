"""Who is using what: shared and exclusive locks that die with their process.

Every holder locks a file of its own under `locks/<key>/` and says beside it who it is, so the next
one can name it. The lock is the operating system's (filelock): what a killed process left behind
locks nothing and is cleared away. This module knows nothing of what the keys stand for.
"""

import errno
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from longctx.core.errors import Locked

FOLDER = "locks"
_POLL = 0.2  # seconds between two looks at a lock that is waited for
_GATE_WAIT = 60  # seconds; the gate is held for an instant only
_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock, as it described itself."""

    pid: int
    host: str
    exclusive: bool

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Locks:
    """The locks of one folder.

    Args:
        folder: a library.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    @contextmanager
    def shared(self, key: str) -> Iterator[None]:
        """Hold a lock beside others that only read; where nothing can be written, hold none.

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
        try:
            yield
        finally:
            if held:
                self._release(held)

    @contextmanager
    def exclusive(self, key: str, wait: float = 0.0) -> Iterator[None]:
        """Hold a lock alone.

        Args:
            key: a relative path that names what is locked.
            wait: seconds to wait for others.

        Raises:
            Locked: somebody reads or writes, also after `wait`.
            OSError: the library cannot be written.
        """
        held = self._acquire(key, exclusive=True, wait=wait)
        try:
            yield
        finally:
            self._release(held)

    def _acquire(self, key: str, exclusive: bool, wait: float) -> FileLock:
        until = time.monotonic() + wait
        while True:
            with self._gate():
                against = [h for h in self._living(key) if exclusive or h.exclusive]
                if not against:
                    return self._enter(key, exclusive)
            if time.monotonic() >= until:
                raise _locked(key, against)
            time.sleep(_POLL)

    def _enter(self, key: str, exclusive: bool) -> FileLock:
        place = self._folder / FOLDER / key
        place.mkdir(parents=True, exist_ok=True)
        holder = Holder(os.getpid(), socket.gethostname(), exclusive)
        path = place / f"{holder.pid}-{secrets.token_hex(4)}.lock"
        lock = FileLock(path, thread_local=False)
        lock.acquire(timeout=0)
        path.with_suffix(".json").write_text(json.dumps(asdict(holder)), "ascii")
        return lock

    def _release(self, lock: FileLock) -> None:
        # A library that vanished, or whose disk is full, has no lock worth keeping.
        with suppress(OSError), self._gate():
            lock.release()
            _forget(Path(lock.lock_file))
        lock.release()

    def _living(self, key: str) -> list[Holder]:
        return [
            holder
            for path in (self._folder / FOLDER / key).glob("*.lock")
            if (holder := _holder(path))
        ]

    def _gate(self) -> FileLock:
        """Taken to take or leave a lock: nobody locks a file that is just being deleted."""
        if not self._folder.is_dir():  # filelock would make it again
            raise FileNotFoundError(errno.ENOENT, "the library has gone", str(self._folder))
        return FileLock(self._folder / ".lock", timeout=_GATE_WAIT)


def _holder(path: Path) -> Holder | None:
    """Who holds a lock file; None, and the file deleted, where its process is dead."""
    probe = FileLock(path)
    try:
        probe.acquire(timeout=0)
    except Timeout:
        try:
            return Holder(**json.loads(path.with_suffix(".json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return Holder(0, "an unknown host", True)
    probe.release()
    _forget(path)
    return None


def _forget(path: Path) -> None:
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _locked(key: str, holders: list[Holder]) -> Locked:
    name = key.rpartition("/")[2]
    doing = "written" if any(holder.exclusive for holder in holders) else "read"
    who = " and ".join(map(str, holders))
    return Locked(
        f"'{name}' is being {doing} by {who}", remedy="Wait until it is done, then try again"
    )
