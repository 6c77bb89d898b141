"""Folders among the system's temporary ones, which the process that made them holds.

A process that is killed outright leaves its folder; the next run of its kind deletes it.
"""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

HELD = "held"  # the file in it that its process holds locked
OLD = 60.0  # seconds after which a folder that nobody holds is a killed run's


def lock_of(folder: Path) -> FileLock:
    """The lock that the folder's process holds, in whichever thread; not yet acquired."""
    return FileLock(folder / HELD, thread_local=False)


def sweep(prefix: str) -> None:
    """Deletes the folders of killed runs whose names begin with `prefix`."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError, Timeout):
            status = folder.lstat()
            mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
            if not mine or folder.is_symlink() or status.st_mtime > time.time() - OLD:
                continue
            with FileLock(folder / HELD, timeout=0):
                pass
            shutil.rmtree(folder)
