"""Whether a source is still what was read of it.

By size and modification time where these are as recorded, otherwise by content. Opens files, and
knows nothing of libraries, tokens or models.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

from longctx.core.store.manifest import Source

_BLOCK = 1 << 20


def is_same(known: Source, path: Path) -> bool:
    """Whether a file has just the bytes that were read.

    Args:
        known: what the manifest says of a source that was read to its end.
        path: the file.

    Raises:
        OSError: it cannot be read.
    """
    status, file = path.stat(), known.origin or known
    if status.st_size != file.size:
        return False
    if status.st_mtime_ns == known.mtime_ns:
        return True
    if known.origin:  # many sources may be of one archive
        return _hashed(path, status.st_size, status.st_mtime_ns) == file.sha256
    return begins_with(path, file.size, file.sha256)


@lru_cache(64)
def _hashed(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def begins_with(path: Path, size: int, sha256: str) -> bool:
    """Whether the first `size` bytes of a file have this hash.

    Raises:
        OSError: it cannot be read.
    """
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left and (data := file.read(min(_BLOCK, left))):
            digest.update(data)
            left -= len(data)
    return not left and digest.hexdigest() == sha256


def has_changed(known: Source) -> bool:
    """Whether the file that a document was read from has other content now.

    A file that has gone, or that cannot be read, has not changed: the document stands for itself.
    """
    if known.path is None or known.undecodable is None:
        return False
    try:
        return not is_same(known, Path(known.path))
    except (OSError, ValueError):
        return False
