"""Durable writing: a file appears under its name only when it is whole and synced.

A failed write becomes one error that names the file and the free disk space. This module knows
nothing of what the files hold; it returns the checksums of their blocks.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from longctx.core.common.errors import LongctxError
from longctx.core.store import shards
from longctx.core.store.confined import Confined
from longctx.core.store.filling import Piece, fill
from longctx.core.store.shards import Shard

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
TEMPORARY = ".tmp-"  # unfinished files; no shard and no document can have such a name


@contextmanager
def storing(path: Confined | Path, needed: int = 0) -> Iterator[None]:
    """Turn a failed write of `path` (`needed` bytes) into a LongctxError.

    It has the figures, unless writing there is forbidden.
    """
    path = Confined.of(path).path
    try:
        yield
    except OSError as exc:
        why, do = exc.strerror or str(exc), "Allow writing there"
        if exc.errno not in _FORBIDDEN:
            home = next((parent for parent in path.parents if parent.is_dir()), path)
            why += f" ({needed:,} bytes needed, {shutil.disk_usage(home).free:,} bytes free)"
            do = "Make room or allow writing there"
        raise LongctxError(
            f"cannot write '{path}'",
            why,
            f"Finished documents are as they were. {do}, or choose another --library, and run the "
            "same command again",
        ) from exc


def make_folder(path: Path, mode: int) -> None:
    """Makes a folder and its parents so that they survive a power cut.

    Args:
        path: where.
        mode: of the folder itself; its parents get the usual one.
    """
    missing = [p for p in (path, *path.absolute().parents) if not p.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another process has just made it
        path.mkdir()
        path.chmod(mode)
    for folder in missing:
        Confined(folder.absolute().parent).sync()


def write_file(
    folder: Confined | Path,
    name: str,
    needed: int,
    pieces: Iterable[Piece],
    mtime_ns: int | None = None,
) -> list[str]:
    """Writes pieces to a temporary file, one after another, then syncs it and gives it its name.

    Args:
        folder, name: of the file.
        needed: bytes, for the error.
        pieces: what it holds.
        mtime_ns: its modification time; None: now.

    Returns:
        The xxh3-128 of each 1 MiB block.

    Raises:
        LongctxError: the file cannot be written; whatever had its name before still has it.
    """
    folder = Confined.of(folder)
    temporary = folder / f"{TEMPORARY}{secrets.token_hex(8)}"  # of this process alone
    with storing(folder / name, needed):
        try:
            with temporary.open("xb", 0) as file:
                blocks = fill(file, pieces)
                if mtime_ns is not None:
                    with temporary.real() as path:
                        os.utime(path, ns=(mtime_ns, mtime_ns))
                os.fsync(file.fileno())
            temporary.replace(folder / name)
            folder.sync()
        finally:
            temporary.unlink(missing_ok=True)
    return blocks


def write_text(folder: Confined, name: str, text: str, mtime_ns: int | None = None) -> None:
    """Write a file of ASCII text; LongctxError where it cannot be written.

    Args:
        folder, name: of the file.
        text: what it holds.
        mtime_ns: its modification time; None: now.
    """
    data = text.encode("ascii")
    write_file(folder, name, len(data), [data], mtime_ns)


def link_files(source: Confined, folder: Confined, files: Iterable[Shard]) -> None:
    """Links files into another folder; copies them where the file system has no links.

    Raises:
        LongctxError: they cannot be put there.
    """
    with storing(folder):
        for shard in files:
            _link(source / shard.file, folder / shard.file, shard)
        folder.sync()


def linked(folder: Confined, shard: Shard, name: str) -> Shard:
    """Gives a file a second name in its folder; copies it where the file system has no links.

    Returns:
        Its record under that name.

    Raises:
        LongctxError: it cannot be made.
    """
    with storing(folder / name, shard.size):
        _link(folder / shard.file, folder / name, shard)
        folder.sync()
    return replace(shard, file=name)


def _link(source: Confined, target: Confined, shard: Shard) -> None:
    try:
        source.require_file()
        source.link_to(target)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        with source.open("rb", 0) as file:
            pieces = iter(partial(file.read, shards.BLOCK), b"")
            write_file(target.parent, target.name, shard.size, pieces)
