"""A document as one file: a tar of its manifest and the files it names, in its order.

Nothing damaged is exported, and nothing is trusted on import: names and sizes must match the
manifest, checksums are verified, and a document is published only when all of it has arrived. This
module knows nothing of what a document holds.
"""

import dataclasses
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.common.units import show_bytes
from longctx.core.store import shards
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.durable import storing, write_text
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, MANIFEST_BYTES, Manifest
from longctx.core.store.naming import require_name
from longctx.core.store.shards import OF_PASSAGES, Shard
from longctx.core.store.space import MORE_DISK, folder_bytes, free_disk, left_of
from longctx.core.store.word_files import damaged_tables

_END = bytes(2 * tarfile.BLOCKSIZE)
_FILL = 1 << 20  # most bytes of zeros after the end; programs pad their last record with them
_SIZE = re.compile(rb"\d+ size=(\d{1,18})\n")  # the only record of a pax header that we need

OnProgress = Callable[[int, int], None]  # gets bytes done, and bytes in all


# --- export ---


def sound(document: Document) -> Manifest:
    """The manifest to export: the document's own, without a word index or vectors if damaged."""
    manifest = document.manifest
    left_out = {group for group in OF_PASSAGES if damaged_tables(document, group)}
    if not left_out:
        return manifest
    kept = tuple(shard for shard in manifest.shards if shard.group not in left_out)
    return dataclasses.replace(manifest, shards=kept)


def export(
    document: Document,
    out: IO[bytes],
    on_progress: OnProgress = lambda done, total: None,
    manifest: Manifest | None = None,
) -> int:
    """Write a document to a file; every block is verified as it is read.

    Args:
        document: a complete one.
        out: where to write; it need not be seekable.
        on_progress: called after every block.
        manifest: as of `sound`; None: the document's own.

    Returns:
        Bytes written. The same document gives the same bytes.

    Raises:
        StateMismatch: it is damaged. What was written is then useless.
        LongctxError: its manifest is too long.
    """
    manifest = manifest or document.manifest
    text = manifest.to_json().encode("ascii")
    if len(text) > MANIFEST_BYTES:
        raise LongctxError(
            f"cannot export '{manifest.name}'",
            f"its manifest has {len(text):,} bytes, and {MANIFEST_BYTES:,} is the most",
            "Copy the folder of the document instead",
        )
    total = manifest.size + len(text)
    written = 0
    for piece in _pieces(document, manifest, text):
        out.write(piece)
        written += len(piece)
        on_progress(min(written, total), total)
    return written


def _pieces(document: Document, manifest: Manifest, text: bytes) -> Iterator[bytes | memoryview]:
    yield _header(MANIFEST, len(text))
    yield text
    yield _padding(len(text))
    for shard in manifest.shards:
        yield _header(shard.file, shard.size)
        yield from document.blocks(shard)
        yield _padding(shard.size)
    yield _END


def _header(name: str, size: int) -> bytes:
    """A file's header: mode 644, no time or owner; over 8 GiB, a pax header gives the size."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT, "ascii", "strict")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


# --- import ---


def receive(
    library: Path,
    file: IO[bytes],
    label: str,
    name: str,
    replace: bool = False,
    max_size: int | None = None,
    on_progress: OnProgress = lambda done, total: None,
    shared: bool = False,
) -> Manifest:
    """Import a document that `export` wrote into a library.

    Args:
        library: the library's folder; made if absent.
        file: read from its beginning to its end, once.
        label: what to call the file in errors.
        name: the document's name in this library, in any script.
        replace: a document of this name, or a stopped reading of it, is replaced.
        max_size: bytes that the library may take; None: no limit but the disk.
        on_progress: called after every block.
        shared: as in `Library.open`, if the library is made.

    Returns:
        The document's manifest.

    Raises:
        UsageError: a bad name; or there is such a document or reading, and `replace` is false.
        StateMismatch: `export` did not write the file, or it is damaged or of another format.
        Locked: another process uses what is to be replaced.
        LongctxError: there is no room, or the library cannot be written. After any error the
            library is as it was, or it has the whole document.
    """
    archive = _Archive(file, label)
    manifest = archive.manifest("document")
    _require_room(library, label, manifest, max_size)
    store = Library.open(library, create=True, shared=shared)
    folder_name, title = store.place_for(require_name(name))
    manifest = dataclasses.replace(manifest, folder=folder_name, title=title)
    with store.receiving(folder_name, replace) as (folder, publish):
        done = 0
        for shard in manifest.shards:
            for count in archive.unpack(shard, folder):
                done += count
                on_progress(done, manifest.size)
        archive.end()
        write_text(folder, MANIFEST, manifest.to_json())
        try:
            Document(folder).verify_text()
        except StateMismatch as exc:
            what = exc.what.replace(f"{folder}{os.sep}", "")
            raise archive.unfit(f"{what}: {exc.why}") from exc
        publish()
    return manifest


def _require_room(library: Path, label: str, manifest: Manifest, max_size: int | None) -> None:
    size = manifest.size + len(manifest.to_json())
    rooms = [(free_disk(library), "are free", MORE_DISK)]
    if max_size is not None:
        rooms.append(left_of(max_size, folder_bytes(library)))
    for room, where, remedy in rooms:
        if size > room:
            raise LongctxError(
                f"no room in the library '{library}'",
                f"the document in '{label}' has {show_bytes(size)}, and "
                f"{show_bytes(max(room, 0))} {where}",
                remedy,
            )


class _Archive:
    """Reads a tar as a stream, file after file; no header can make it do anything else.

    Args:
        file: the tar.
        label: what to call it in errors.

    Raises:
        StateMismatch: in every method: `export` did not write it.
        LongctxError: in every method: it cannot be read.
    """

    def __init__(self, file: IO[bytes], label: str):
        self._file, self._label = file, label

    def manifest(self, folder: str) -> Manifest:
        """The manifest, which comes first, of a complete document, for a folder of this name."""
        size = self._begin(MANIFEST)
        if size > MANIFEST_BYTES:
            raise self.unfit(f"its manifest has {size:,} bytes, more than {MANIFEST_BYTES:,}")
        text = self._take(size)
        self._take(-size % tarfile.BLOCKSIZE)
        try:
            manifest = Manifest.from_json(text, folder)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as exc:
            raise self.unfit(f"its manifest is damaged: {exc}") from exc
        if manifest.status != "complete":
            raise self.unfit("the document in it is not complete")
        return manifest

    def unpack(self, shard: Shard, folder: Confined) -> Iterator[int]:
        """Write the next file, which must be `shard`; yields the bytes of each block."""
        size = self._begin(shard.file)
        if size != shard.size:
            raise self.unfit(f"{shard.file} has {size:,} bytes and should have {shard.size:,}")
        path = folder / shard.file
        with storing(path, size), path.open("xb") as out:
            for number, digest in enumerate(shard.blocks):
                block = self._take(min(shards.BLOCK, size - number * shards.BLOCK))
                if xxh3_128_hexdigest(block) != digest:
                    raise self.unfit(f"block {number} of {shard.file} is damaged")
                out.write(block)
                yield len(block)
            out.flush()
            os.fsync(out.fileno())
        self._take(-size % tarfile.BLOCKSIZE)

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._take(len(_END)) != _END or self._read(_FILL).strip(b"\0") or self._read(1):
            raise self.unfit("it holds more than its manifest names")

    def unfit(self, why: str) -> StateMismatch:
        """The error for a file that cannot be imported."""
        return StateMismatch(
            f"cannot import '{self._label}'", why, "Make it again with `longctx export`"
        )

    def _begin(self, name: str) -> int:
        """Read the header of a regular file, which must have this name; returns its size."""
        member = self._member(name)
        size = member.size
        if member.type == tarfile.XHDTYPE and 0 < size <= tarfile.BLOCKSIZE:
            record = _SIZE.fullmatch(self._take(tarfile.BLOCKSIZE)[:size])
            if not record:
                raise self.unfit(f"it has a header before {name} that longctx does not write")
            size, member = int(record[1]), self._member(name)
        if member.type != tarfile.REGTYPE or size < 0:
            raise self.unfit(f"{member.name!r} is no plain file")
        if member.name != name:
            raise self.unfit(f"it has {member.name!r} where {name} should be")
        return size

    def _member(self, name: str) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(self._take(tarfile.BLOCKSIZE), "utf-8", "replace")
        except tarfile.HeaderError as exc:
            raise self.unfit(f"there is no file {name} in it where it should be ({exc})") from exc

    def _take(self, count: int) -> bytes:
        data = self._read(count)
        if len(data) != count:
            raise self.unfit("it is cut off")
        return data

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except OSError as exc:
            raise LongctxError(
                f"cannot read '{self._label}'", exc.strerror or str(exc), "Look after the file"
            ) from exc
