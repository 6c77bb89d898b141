"""Files that are sent, on disk until they are read: within one limit, and removed at once.

Each is in a folder of its own among the system's temporary ones, as `file`. What a server left that
was killed outright, the next one removes.
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
from longctx.cli.temporary_folders import lock_of, sweep

PREFIX = "longctx-upload-"  # of a folder among the system's temporary ones
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
RETRY_S = 10  # seconds after which there may be room for another file


class Spool:
    """All files that are being sent or wait to be read.

    Args:
        most: bytes that they may have together.
    """

    def __init__(self, most: int):
        sweep(PREFIX)
        self._most = most
        self._uploads: set[Upload] = set()
        self._lock = threading.Lock()  # files are removed in other threads

    @property
    def held(self) -> int:
        """Bytes that they have."""
        with self._lock:
            return sum(upload.size for upload in self._uploads)

    def open(self, length: int) -> "Upload":
        """A new file.

        Args:
            length: its bytes, as far as they are known before.

        Raises:
            Refused: 503 where there is no room for it; 507 where the disk is full.
        """
        self.require(length)
        upload = Upload(self)
        with self._lock:
            self._uploads.add(upload)
        return upload

    def require(self, size: int) -> None:
        """Refuses bytes that there is no room for.

        Raises:
            Refused: 503, with the seconds after which to try again.
        """
        if self.held + size > self._most:
            raise Refused(
                503,
                f"all files that are sent at once may have {self._most:,} bytes together; "
                f"try again in {RETRY_S} seconds",
                "too_many_uploads",
                headers={"Retry-After": str(RETRY_S)},
            )

    def forget(self, upload: "Upload") -> bool:
        """Does not count a file any more; False: it was not counted."""
        with self._lock:
            counted = upload in self._uploads
            self._uploads.discard(upload)
        return counted

    def close(self) -> None:
        """Removes all of them, also one that is being read: the server ends."""
        with self._lock:
            uploads = [*self._uploads]
        for upload in uploads:
            upload.close()


class Upload:
    """A file that is being sent; `close` removes it.

    Args:
        spool: what it counts in.

    Attributes:
        path: where it lies.
        size: its bytes.

    Raises:
        Refused: 507 where the disk is full.
    """

    def __init__(self, spool: Spool):
        self._spool, self.size = spool, 0
        with _on_disk():
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            self.path, self._lock = self._folder / "file", lock_of(self._folder)
            try:
                self._lock.acquire()
                self._file = self.path.open("xb")
            except OSError:
                self._remove()
                raise

    async def write(self, piece: bytes) -> None:
        """Appends to it; raises as `Spool.open`."""
        self._spool.require(len(piece))
        self.size += len(piece)
        with _on_disk():
            await run_in_threadpool(self._file.write, piece)

    async def complete(self) -> None:
        """Writes what is still in memory; raises as `Spool.open`."""
        with _on_disk():
            await run_in_threadpool(self._file.close)

    def close(self) -> None:
        """Removes it, in any thread; a second time does nothing."""
        if not self._spool.forget(self):
            return
        with suppress(OSError):  # the disk is full
            self._file.close()
        self._remove()

    def _remove(self) -> None:
        self._lock.release()
        shutil.rmtree(self._folder, ignore_errors=True)


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
            message = f"the temporary folder{folder} of the server is full: {why}; {do}"
            raise Refused(507, message, "no_space") from error
        message = f"cannot write in the temporary folder{folder} of the server: {why}"
        raise Refused(500, message, "unwritable") from error
