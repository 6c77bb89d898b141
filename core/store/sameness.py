"""Whether a source is still what was read of it.

By size and modification time where these are as recorded, otherwise by content. Opens regular files
alone, and knows nothing of libraries, tokens or models.

Where a source was is what a document says, and a document may be a stranger's: its path may lead to
a pipe, to a device, or to a machine that does not answer. A question looks at it, opens it only
where nothing else tells, and waits for nobody.
"""

import hashlib
import os
import queue
import threading
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG

from longctx.core.common.regular_files import open_regular
from longctx.core.store.manifest import SourceRecord

COMPARED = 64 << 20  # bytes of sources that one look reads again, at most
SILENCE = 2.0  # seconds after which a source that could not be looked at is let be
_BLOCK = 1 << 20


def is_same(known: SourceRecord, path: Path) -> bool:
    """Whether a file has just the bytes that were read.

    Args:
        known: what the manifest says of a source that was read to its end.
        path: the file.

    Raises:
        OSError: it cannot be read.
    """
    status, file = path.stat(), known.origin or known
    if not S_ISREG(status.st_mode) or status.st_size != file.size:
        return False
    if status.st_mtime_ns == known.mtime_ns:
        return True
    if known.origin:  # many sources may be of one archive
        return _begins_with(path, file.size, file.sha256, status.st_mtime_ns)
    return begins_with(path, file.size, file.sha256)


def begins_with(path: Path, size: int, sha256: str) -> bool:
    """Whether the first `size` bytes of a file have this hash.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    digest, left = hashlib.sha256(), size
    with open_regular(path) as file:
        while left > 0 and (data := file.read(min(_BLOCK, left))):
            digest.update(data)
            left -= len(data)
    return left == 0 and digest.hexdigest() == sha256


@lru_cache(64)
def _begins_with(path: Path, size: int, sha256: str, mtime_ns: int) -> bool:
    """The same, remembered as long as the file is not written to."""
    return begins_with(path, size, sha256)


def changed_sources(sources: Iterable[SourceRecord], silence: float = SILENCE) -> list[str]:
    """Names of the sources whose files have other content now than what was read.

    A file that has gone, that is no regular file, or that cannot be read has not changed: the
    document stands for itself. One of the same size that was written to is read again as far as
    `COMPARED` allows for all of them; beyond that, it has changed.

    Args:
        sources: as manifests tell them.
        silence: seconds after which a source that gives no answer ends the look, as on a disk of
            another machine that is down. That source and those after it count as unchanged.
    """
    known = [source for source in sources if _has_place(source)]
    if not known:
        return []
    found: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    # Who waits for such a disk cannot be made to stop; a daemon does not keep the process.
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
    """Whether a source was read to its end from a place that can be looked at.

    On Windows, a path of two slashes names a machine, which would be told who is asking.
    """
    path = known.path
    whole = path is not None and known.undecodable is not None
    return whole and os.path.isabs(path) and path[:2] not in ("\\\\", "//")


def _look(sources: list[SourceRecord], found: "queue.SimpleQueue[tuple[str, bool]]") -> None:
    """Tells of each source whether it has changed."""
    look = _Look()
    for known in sources:
        try:
            differs = look.differs(known)
        except (OSError, ValueError):
            differs = False
        found.put((known.name, differs))


class _Look:
    """What a question has read of sources so far."""

    def __init__(self) -> None:
        self._left = COMPARED
        self._counted: set[str] = set()  # many sources may be of one archive

    def differs(self, known: SourceRecord) -> bool:
        """Whether a file is there and has other content; OSError where it has gone."""
        status, size = os.stat(known.path), (known.origin or known).size
        if not S_ISREG(status.st_mode):
            return False
        if (status.st_size, status.st_mtime_ns) == (size, known.mtime_ns):
            return False
        if status.st_size != size or not self._may_read(known.path, size):
            return True
        return not is_same(known, Path(known.path))

    def _may_read(self, path: str, size: int) -> bool:
        if path not in self._counted and size <= self._left:
            self._left -= size
            self._counted.add(path)
        return path in self._counted
