"""What a file is now, compared with what was read: the same, grown, replaced or gone.

If size and modification time are as recorded, these decide; otherwise the content does. Opens only
regular files, and knows nothing of libraries, tokens or models. It is kept with the records that it
compares because reading (`ingest/identity.py`) and asking both use it.

A source's path comes from the document, which may be a stranger's: it may lead to a pipe, a device,
or a machine that does not answer. A question looks at the path, opens it only if nothing else
decides, and does not wait.
"""

import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG

from longctx.core.common.regular_files import open_regular
from longctx.core.store.manifest import SourceRecord

COMPARED = 64 << 20  # most bytes of sources that one check reads again
SILENCE = 2.0  # seconds after which a source that does not answer is skipped
_BLOCK = 1 << 20


class Now(Enum):
    """What a file is now, compared with what was read."""

    SAME = "it has just the bytes that were read"
    GROWN = "it begins with them"
    REPLACED = "it has others, or is no regular file"
    GONE = "it is not there, or cannot be read"


def compare(
    record: SourceRecord,
    path: Path,
    may_grow: bool = False,
    may_read: Callable[[Path, int], bool] = lambda path, size: True,
) -> Now:
    """Compares a file with what was read of it.

    Args:
        record: what the manifest says of the source.
        path: where the file is now.
        may_grow: more may follow what was read, and the bytes are always compared. Otherwise the
            file is not opened where size and modification time decide, and a longer one is
            `REPLACED`.
        may_read: whether so many bytes may be read of the path; if not, the file is `REPLACED`.
    """
    file = record.origin or record
    try:
        status = path.stat()
        same_size = status.st_size == file.size
        if not S_ISREG(status.st_mode) or not (same_size or may_grow):
            return Now.REPLACED
        if not may_grow and status.st_mtime_ns == record.mtime_ns:
            return Now.SAME
        if not may_read(path, file.size):
            return Now.REPLACED
        if record.origin:  # many sources may be from one archive
            begins = _begins_with(path, file.size, file.sha256, status.st_mtime_ns)
        else:
            begins = begins_with(path, file.size, file.sha256)
    except (OSError, ValueError):
        return Now.GONE
    if not begins:
        return Now.REPLACED
    return Now.SAME if same_size else Now.GROWN


def begins_with(path: Path, size: int, sha256: str) -> bool:
    """Whether the first `size` bytes of a file have this hash.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    digest, left = hashlib.sha256(), size
    with open_regular(path) as file:
        while left > 0 and (data := file.read(min(_BLOCK, left))):
            digest.update(data)
            left -= len(data)
    return left == 0 and digest.hexdigest() == sha256


@lru_cache(64)
def _begins_with(path: Path, size: int, sha256: str, mtime_ns: int) -> bool:
    """The same, cached until the file is written to."""
    return begins_with(path, size, sha256)


def changed_sources(sources: Iterable[SourceRecord], silence: float = SILENCE) -> list[str]:
    """Names of the sources whose files now differ from what was read.

    A file that is gone, not regular or not readable counts as unchanged: the document stands on its
    own. A file of the same size that was written to is read again, up to `COMPARED` bytes over all
    sources; beyond that, it counts as changed.

    Args:
        sources: as in manifests.
        silence: seconds after which a source that does not answer ends the check, as on a remote
            disk that is down. That source and those after it count as unchanged.
    """
    known = [source for source in sources if _has_place(source)]
    if not known:
        return []
    found: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    # A thread that waits for such a disk cannot be stopped; a daemon does not keep the process.
    threading.Thread(target=_look, args=(known, found), daemon=True, name="sources").start()
    names = []
    for _ in known:
        try:
            name, differs = found.get(timeout=silence)
        except queue.Empty:
            break
        names += [name] if differs else []
    return names


def _has_place(known: SourceRecord) -> bool:
    """Whether a source was read to its end from a path that can be checked.

    On Windows, a path of two slashes names a machine, which would learn who is asking.
    """
    path = known.path if known.undecodable is not None else None
    return path is not None and os.path.isabs(path) and path[:2] not in ("\\\\", "//")


def _look(sources: list[SourceRecord], found: "queue.SimpleQueue[tuple[str, bool]]") -> None:
    """Reports for each source whether it has changed."""
    left, counted = COMPARED, set()  # many sources may be from one archive

    def may_read(path: Path, size: int) -> bool:
        nonlocal left
        if path not in counted and size <= left:
            left -= size
            counted.add(path)
        return path in counted

    for record in sources:
        path, differs = record.path or "", False
        if os.path.isfile(path):
            differs = compare(record, Path(path), may_read=may_read) is Now.REPLACED
        found.put((record.name, differs))
