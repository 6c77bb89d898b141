"""The size of a library, and the room left for it. Knows nothing of its content."""

import shutil
import stat
from pathlib import Path

from longctx.core.common.errors import LongctxError
from longctx.core.common.units import show_bytes
from longctx.core.store.confined import Confined

MORE_DISK = "Free some space, or name a library on another disk with --library."


def folder_bytes(folder: Confined | Path) -> int:
    """Bytes of all files in a folder, each counted once however many names it has."""
    sizes: dict[tuple[int, int], int] = {}
    for file in Confined.of(folder).tree():
        try:
            status = file.stat()
        except OSError:  # deleted meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def free_disk(folder: Path) -> int:
    """Bytes free on the disk that a folder is on, or would be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def left_of(max_size: int, used: int, begun: int = 0) -> tuple[int, str, str]:
    """What a limit leaves: the bytes, how to say where they are, and what to do if it is too few.

    Args:
        max_size: bytes that the library may have.
        used: those that it has.
        begun: those of them that what is to be written has already.
    """
    where = f"are left of --max-size ({show_bytes(max_size)}; the library has {show_bytes(used)})"
    remedy = "Give a larger --max-size, delete documents (`longctx rm`), or name another --library."
    return max_size - used + begun, where, remedy


def require_size(library: Path, max_size: int | None, growth: int = 0) -> None:
    """Stops when a library has grown over its limit, as a stream can make it do.

    Args:
        library: its folder.
        max_size: bytes that it may have; None: no limit.
        growth: bytes about to be added.

    Raises:
        LongctxError: with both figures.
    """
    if max_size is None:  # counting a large library takes longer than reading a short document
        return
    size = folder_bytes(library) + growth
    if size > max_size:
        raise LongctxError(
            f"the library '{library}' is full",
            f"it has {show_bytes(size)}, and --max-size is {show_bytes(max_size)}",
            "What the last checkpoint holds is kept: the same command goes on with a larger one.",
        )
