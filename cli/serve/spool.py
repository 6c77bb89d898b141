"""Files that are sent, on disk until they are read: within one limit, and removed at once.

Each lies in a folder of its own among the system's temporary ones, under a name of ours.
"""

import errno
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from longctx.cli.serve.errors import Refused

PREFIX = "longctx-upload-"  # of a folder among the system's temporary ones
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
RETRY_S = 10  # seconds after which there may be room for another file


class Spool:
    """What all files that are being sent or wait to be read may have on disk.

    Args:
        most: bytes of all of them together.
    """

    def __init__(self, most: int):
        self._most, self._held = most, 0
        self._lock = threading.Lock()

    def require(self, size: int) -> None:
        """Refuses bytes that there is no room for.

        Raises:
            Refused: 503, with the seconds after which to try again.
        """
        if self._held + size > self._most:
            raise Refused(
                503,
                f"all files that are sent at once may have {self._most:,} bytes together; "
                f"try again in {RETRY_S} seconds",
                "too_many_uploads",
                headers={"Retry-After": str(RETRY_S)},
            )

    def take(self, size: int) -> None:
        """Counts bytes that are written; raises as `require`."""
        with self._lock:
            self.require(size)
            self._held += size

    def release(self, size: int) -> None:
        """Counts bytes that are removed."""
        with self._lock:
            self._held -= size


class Upload:
    """A file that is being sent; `close` removes it.

    Args:
        spool: what it counts in.
        length: its bytes, as far as they are known before.

    Attributes:
        path: where it lies.

    Raises:
        Refused: 503 where there is no room for it; 507 where the disk is full.
    """

    def __init__(self, spool: Spool, length: int):
        spool.require(length)
        self._spool, self._size = spool, 0
        self._lock, self._closed = threading.Lock(), False
        with _on_disk():
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            self.path = self._folder / "file"
            try:
                self._file = self.path.open("xb")
            except OSError:
                self._folder.rmdir()
                raise

    async def write(self, piece: bytes) -> None:
        """Appends to it; raises as the class does."""
        self._spool.take(len(piece))
        self._size += len(piece)
        with _on_disk():
            await run_in_threadpool(self._file.write, piece)

    async def complete(self) -> None:
        """Writes what is still in memory; raises as the class does."""
        with _on_disk():
            await run_in_threadpool(self._file.close)

    def close(self) -> None:
        """Removes it, in any thread; a second time does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with suppress(OSError):  # the disk is full
            self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._spool.release(self._size)


@contextmanager
def _on_disk() -> Iterator[None]:
    """Turns errors of the disk into refusals that name the folder."""
    try:
        yield
    except OSError as error:
        # It is None where no folder could be written in, which the error says then.
        folder = f" '{tempfile.tempdir}'" if tempfile.tempdir else ""
        why = error.strerror or str(error)
        if error.errno in FULL:
            do = "make room in it, or start the server with TMPDIR set to another folder"
            told = f"the temporary folder{folder} of the server is full: {why}; {do}"
            raise Refused(507, told, "no_space") from error
        told = f"cannot write in the temporary folder{folder} of the server: {why}"
        raise Refused(500, told, "unwritable") from error
