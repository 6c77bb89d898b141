"""Appending to a document: a checkpoint at its boundary, from which a writer continues.

Files that do not change are linked, so only partly filled ones are copied; the document stays as
it is until the longer one replaces it. Knows nothing of tokens or models.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from longctx.core.store.boundary import Boundary, folded
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.durable import link_files
from longctx.core.store.manifest import SourceRecord, in_order
from longctx.core.store.marks import marks_before
from longctx.core.store.places import LibraryFolders, write_manifest
from longctx.core.store.shard_writer import SHARD_ROWS, GroupWriter, TextWriter, write_tensors
from longctx.core.store.shards import SNAPSHOTS, Shard, shard_name
from longctx.core.store.writer import Writer, unfenced


@dataclass
class Longer:
    """A complete document that is being appended to, exclusively; made by `Library.longer`.

    Attributes:
        document: the document as it is now.
        begun: what an earlier run left of a longer document, or of a replacement.
        shard_rows: rows of a full shard.
        fence: raises where the document has become another's to write.
    """

    document: Document
    begun: Document | None
    places: LibraryFolders
    shard_rows: int = SHARD_ROWS
    fence: Callable[[], None] = unfenced

    def go_on(self, header: dict[str, Any]) -> Writer:
        """Continues from what was begun; StateMismatch where that is damaged."""
        return self._writer(header, self.begun)

    def begin(
        self,
        header: dict[str, Any],
        boundary: Boundary,
        sources: tuple[SourceRecord, ...],
        report: dict[str, Any],
    ) -> Writer:
        """Continues from the document's boundary; what was begun before is dropped.

        Args:
            header: as in `Library.writer`.
            boundary: the document's.
            sources: the sources before the boundary; the last one may be partial.
            report: what the manifest says of the reading so far.

        Raises:
            StateMismatch: the document is damaged.
            LongctxError: the library cannot be written.
        """
        folder = self.places.unfinished(self.document.manifest.folder)
        self.places.empty(folder, folder.name)
        if not boundary.tokens:
            return self._writer(header, None)
        reopen(self.document, folder, boundary, sources, report, self.shard_rows)
        return self._writer(header, Document(folder))

    def _writer(self, header: dict[str, Any], begun: Document | None) -> Writer:
        name = self.document.manifest.folder
        publish = partial(self.places.publish, name)
        folder = self.places.unfinished(name)
        shape = (self.shard_rows, publish, begun, self.document, self.fence)
        return Writer(folder, header, *shape)


def reopen(
    document: Document,
    folder: Confined,
    boundary: Boundary,
    sources: tuple[SourceRecord, ...],
    report: dict[str, Any],
    shard_rows: int,
) -> None:
    """Writes the checkpoint that reading `document` could have left at its boundary.

    Args:
        document: a complete document.
        folder: an empty folder.
        boundary, sources, report: as in `Longer.begin`.
        shard_rows: rows of a full shard, if none is full yet.
    """
    number = 0  # of the checkpoint
    entries: list[Shard] = []
    for group in SNAPSHOTS:
        rows = boundary.snapshot
        rows = rows if group == "memory" else folded(rows, rows)
        entries.append(write_tensors(folder, group, shard_name(group, 0, number), rows))
    size = sum(source.size for source in sources)
    entries += _text(document, folder, size).shards(number)
    counts = dict.fromkeys(document.groups, boundary.tokens)
    if marks := marks_before(document, size):
        counts["marks"] = marks
    for group, rows in counts.items():
        entries += _group(document, folder, group, rows, shard_rows).shards(number)
    manifest = replace(
        document.manifest,
        status="reading",
        tokens=boundary.tokens,
        sources=sources,
        report={**report, "boundary": boundary.told()},
        shards=in_order(entries),
    )
    write_manifest(folder, manifest)


def _text(document: Document, folder: Confined, size: int) -> TextWriter:
    """The first `size` bytes of the text."""
    full = document.full_text(size)
    link_files(document.folder, folder, full)
    writer = TextWriter(folder, full)
    for piece in document.raw(sum(shard.raw or 0 for shard in full), size):
        writer.add(piece)
    return writer


def _group(
    document: Document, folder: Confined, group: str, rows: int, shard_rows: int
) -> GroupWriter:
    """The first rows of a group."""
    full = document.full(group, rows)
    link_files(document.folder, folder, full)
    rest = document.first_rows(group, len(full), rows)
    writer = GroupWriter(folder, group, rest, shard_rows, full)
    writer.append(rest)
    return writer
