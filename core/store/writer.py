"""Writes one document: text, rows and sources arrive in pieces and become files.

A writer continues from the last checkpoint of an earlier run. This module knows nothing of models,
methods or tokenizers: rows are tensors, options are JSON.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from longctx.core.common.background import done
from longctx.core.common.errors import LongctxError
from longctx.core.store.boundary import Boundary, folded
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.document_language import document_language
from longctx.core.store.durable import link_files, linked, storing
from longctx.core.store.manifest import (
    DRAFT,
    FORMAT,
    MANIFEST,
    Manifest,
    Origin,
    SourceRecord,
    by_group,
    in_order,
)
from longctx.core.store.places import delete_files, delete_folder, sweep, unnamed, write_manifest
from longctx.core.store.shard_writer import WRITERS, GroupWriter, TextWriter, write_tensors
from longctx.core.store.shards import (
    FOR_WORDS,
    MEMBER,
    OF_PASSAGES,
    ROWLESS,
    VECTORS,
    WORDS,
    Rows,
    Shard,
    damaged,
    shard_name,
)
from longctx.core.store.word_files import MakeTables, sound_tables, unchanged_tables, write_tables

RESERVED = ("text", "lines", *ROWLESS)  # groups that are not a method's rows


def unfenced() -> None:
    """Of a document that no other process can have taken over."""


class Writer:
    """Writes one document; made by `Library.writer`. It cannot be used after an error.

    Bytes and rows come in pieces of any size; the final files depend neither on the pieces nor on
    when checkpoints were written. Tokens belong to the source that is open.

    Args:
        folder: a folder named like the document: empty, or the folder of `begun`.
        header: fields of the manifest that are known now.
        shard_rows: rows of a full shard.
        publish: puts the complete folder in its place.
        begun: the last checkpoint of an earlier run, to continue from.
        shorter: the document that is appended to; unchanged parts of its word index and vectors
            are kept.
        fence: called before anything is saved or published; raises Locked where the document has
            become another process's to write.

    Attributes:
        begun: as given.
        drafted: the document's draft; if its text is the same, its words and vectors are kept.

    Raises:
        StateMismatch: `begun` is damaged.
        LongctxError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: Confined,
        header: dict,
        shard_rows: int,
        publish: Callable[[], None],
        begun: Document | None = None,
        shorter: Document | None = None,
        fence: Callable[[], None] = unfenced,
    ):
        import torch

        self.begun, self._shorter = begun, shorter
        self.drafted: Document | None = None
        self._aside: ThreadPoolExecutor | None = None  # deletes, where files are written aside
        self._swept, self._fence = done(lambda: None), fence
        self._folder, self._shard_rows, self._publish = folder, shard_rows, publish
        self._text = TextWriter(folder)
        self._groups: dict[str, GroupWriter] = {}
        self._sources: list[SourceRecord] = []
        self._open: SourceRecord | None = None
        self._sha256 = hashlib.sha256()
        self._checkpoints = 0
        self._stored = begun.manifest.tokens if begun else 0  # tokens of the manifest on disk
        self._snapshots: dict[str, _Saved] = {}  # the last one of each group
        self._fold: tuple[Boundary, Rows | None, Rows] | None = None
        self._manifest = Manifest(
            format=FORMAT,
            status="reading",
            folder=folder.name,
            tokens=0,
            sources=(),
            shards=(),
            **{"report": {}, **header},
        )
        if begun:
            self._take_up(begun)
            return
        write_manifest(folder, self._manifest)
        empty = {"ids": torch.empty(0, dtype=torch.int32), "starts": torch.empty(0).long()}
        self.append("tokens", empty)

    def work_beside(self) -> None:
        """Writes files in other threads; for models that do not compute on the CPU."""
        self._aside = ThreadPoolExecutor(1, "longctx-deleting")
        for group in self._groups.values():
            group.work_beside()

    def begin_source(
        self,
        name: str,
        path: Path | str | None = None,
        mtime_ns: int | None = None,
        encoding: str | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Start the next source; what is added until `end_source` belongs to it.

        An earlier source that was begun but stayed empty is dropped. The encoding may be given
        here, so that a checkpoint can be read.
        """
        if so_far := self._source_so_far():
            raise ValueError(f"source {so_far[0].name!r} is still open")
        self._sha256 = hashlib.sha256()
        before = self._sources[-1] if self._sources else None
        self._open = SourceRecord(
            name=name,
            path=None if path is None else str(path),
            size=0,
            mtime_ns=mtime_ns,
            sha256="",
            encoding=encoding,
            undecodable=None,
            first_token=self._groups["tokens"].rows,
            tokens=0,
            text_start=before.text_start + before.size if before else 0,
            origin=origin,
        )

    def add_bytes(self, data: bytes) -> None:
        """Append raw bytes of the open source."""
        if not self._open:
            raise ValueError("no source is open")
        self._open = replace(self._open, size=self._open.size + len(data))
        self._sha256.update(data)
        self._text.add(data)

    def end_source(
        self,
        size: int,
        sha256: str,
        encoding: str,
        undecodable: int,
        mtime_ns: int | None = None,
    ) -> None:
        """Close the open source, whose bytes and tokens have all been added.

        Args:
            size: bytes that the caller read.
            sha256: of these bytes.
            encoding: the encoding it was decoded with.
            undecodable: bytes that the encoding has no character for.
            mtime_ns: modification time, if the file was reopened since the source was begun.

        Raises:
            ValueError: no source is open, or the bytes added are not those that the caller read.
        """
        if not self._open or (size, sha256) != (self._open.size, self._sha256.hexdigest()):
            raise ValueError(f"{size} bytes {sha256} end {self._open}")
        source = replace(self._closed_now(self._open), encoding=encoding, undecodable=undecodable)
        self._sources.append(replace(source, mtime_ns=mtime_ns or source.mtime_ns))
        self._open = None

    def append(self, group: str, rows: Rows) -> None:
        """Append rows to a group; the first call for a group fixes its tensors.

        Args:
            group: "tokens" ("ids" int32 (n,), "starts" int64 (n,)), or one of the method's names.
            rows: tensors (n, ...) on any device, copied; empty ones declare a group.

        Raises:
            ValueError: no group can have this name, or the rows do not fit the first ones.
            LongctxError: a shard cannot be written.
        """
        if group in RESERVED:
            raise ValueError(f"the group name {group!r} is taken")
        writer = self._groups.get(group)
        if writer is None:
            writer = GroupWriter(self._folder, group, rows, self._shard_rows)
            if self._aside:
                writer.work_beside()
        writer.append(rows)
        self._groups[group] = writer

    def checkpoint(self, snapshot: Rows, boundary: Boundary | None = None, **changes: Any) -> None:
        """Write everything so far, so that a later run can continue from here.

        Rows and bytes that fill no shard yet are written to extra files of this checkpoint and
        stay in memory; the next checkpoint deletes these files.

        Args:
            snapshot: what the method needs to continue: tensors of any shape.
            boundary: where reading continues when the document grows; None: unknown.
            **changes: fields of the manifest: recorded, options, profile, report, ...
        """
        self._save("reading", snapshot, boundary, self._checkpoints, changes)
        self._checkpoints += 1

    def complete(
        self,
        snapshot: Rows | None,
        boundary: Boundary | None = None,
        words: MakeTables | None = None,
        bare: bool = False,
        vectors: MakeTables | None = None,
        **changes: Any,
    ) -> Manifest:
        """Write the rest and publish the document under documents/.

        Args:
            snapshot: what the method needs to answer questions; None: it can be made again by
                reading the tokens, or the prefix where sources were read one by one.
            boundary: as in `checkpoint`.
            words: gives the tables of the word index; None: the document has none.
            bare: the method's rows are left out, since reading the tokens again makes them.
            vectors: gives the vectors of the passages, of a document with the files of `words`;
                None: it has none. The manifest has an `encoder` then.
            **changes: fields of the manifest.

        Raises:
            ValueError: a source is open.
            LongctxError: something cannot be written; there is no document then.
        """
        if so_far := self._source_so_far():
            raise ValueError(f"source {so_far[0].name!r} is still open")
        tables = {WORDS: words, VECTORS: vectors}
        manifest = self._save("complete", snapshot, boundary, None, changes, tables, bare)
        self._swept.result()
        self._fence()
        self._publish()
        return manifest

    def draft(self, words: MakeTables, **changes: Any) -> Manifest:
        """Write text, tokens and words as a draft, before the model encodes anything.

        Args:
            words, changes: as in `complete`.

        Raises:
            LongctxError: something cannot be written.
        """
        return self._save(DRAFT, None, None, None, changes, {WORDS: words})

    def growth(
        self, snapshot: Rows | None, boundary: Boundary | None = None, bare: bool = False
    ) -> int:
        """Bytes that `complete` would add to the folder, without headers, words and vectors."""
        self._settle()
        rows = self._kept_groups(bare).values()
        kept = self._folded(boundary, snapshot) if boundary else {}
        files = [file.held_bytes for file in (self._text, *rows)]
        tensors = *(snapshot or {}).values(), *kept.values()
        snapshots = sum(tensor.nbytes for tensor in tensors)
        tails = [s.size for s in self._manifest.shards if s.checkpoint is not None]
        return sum(files) + snapshots - sum(tails)

    @property
    def units(self) -> str:
        """What is read as one text, as the manifest says it."""
        return self._manifest.units

    @property
    def encoder(self) -> str:
        """What makes the vectors of the passages, as the manifest says it; empty: nothing."""
        return self._manifest.encoder

    @property
    def sources(self) -> tuple[SourceRecord, ...]:
        """The sources that have ended."""
        return tuple(self._sources)

    @property
    def keeps_nothing(self) -> bool:
        """Whether there is neither a document nor a checkpoint to continue from."""
        return not self._stored

    def require_own(self) -> None:
        """Raises Locked where the document has become another process's to write."""
        self._fence()

    def discard(self) -> None:
        """Delete what was written; the next writer of this name starts from scratch."""
        self._fence()
        for wait in (self._settle, self._swept.result):
            with suppress(LongctxError):  # of a file that is deleted too
                wait()
        with storing(self._folder):
            delete_folder(self._folder)

    def _take_up(self, begun: Document) -> None:
        """Restore the state at a checkpoint: full files stay, the rest is loaded."""
        shards = begun.manifest.shards
        self._manifest = replace(self._manifest, shards=shards, tokens=begun.manifest.tokens)
        self._checkpoints = 1 + max(shard.checkpoint or 0 for shard in shards)
        sweep(self._folder, begun.manifest)
        full = by_group(tuple(shard for shard in shards if shard.checkpoint is None))
        pairs = zip(full.pop("text", []), full.pop("lines", []), strict=True)
        self._text = TextWriter(self._folder, [shard for pair in pairs for shard in pair])
        for data in begun.text_tail():
            self._text.add(data)
        for group in by_group(shards).keys() - {*RESERVED}:
            tail = begun.tail(group)
            rows = GroupWriter(self._folder, group, tail, self._shard_rows, full.get(group, []))
            rows.append(tail)
            self._groups[group] = rows
        self._take_up_sources(begun)

    def _take_up_sources(self, begun: Document) -> None:
        self._sources = list(begun.manifest.sources)
        if self._sources and self._sources[-1].undecodable is None:
            self._open = self._sources.pop()
            for start in range(0, self._open.size, MEMBER):
                end = min(start + MEMBER, self._open.size)
                self._sha256.update(begun.text(len(self._sources), start, end))
            if self._sha256.hexdigest() != self._open.sha256:
                raise damaged(self._folder / MANIFEST, "its text is not the one that it describes")

    def _settle(self) -> None:
        """Waits for files that are being written."""
        for group in self._groups.values():
            group.settle()

    def _save(
        self,
        status: str,
        snapshot: Rows | None,
        boundary: Boundary | None,
        checkpoint: int | None,
        changes: dict,
        tables: dict[str, MakeTables | None] | None = None,
        bare: bool = False,
    ) -> Manifest:
        self._fence()
        kept = self._kept_groups(bare)
        tensors = {} if snapshot is None else {"memory": snapshot}
        if boundary:
            report = changes.get("report", self._manifest.report)
            changes = {**changes, "report": {**report, "boundary": boundary.told()}}
        if boundary and boundary.tokens:
            tensors["boundary"] = self._folded(boundary, snapshot)
            self._fold = None  # its copies are gigabytes: the next snapshot takes their memory
        with self._meanwhile() as start:  # words are counted while a large snapshot is written
            snapshots = [start(self._snapshot, *given, checkpoint) for given in tensors.items()]
            files = [
                *self._text.shards(checkpoint),
                *(shard for rows in kept.values() for shard in rows.shards(checkpoint)),
            ]
            self._manifest = replace(
                self._manifest,
                status=status,
                tokens=self._groups["tokens"].rows,
                sources=(*self._sources, *self._source_so_far()),
                shards=in_order(files),
                **changes,
            )
            self._manifest = replace(self._manifest, language=self._language())
            for group, make in (tables or {}).items():  # vectors are of the passages of words
                self._manifest = replace(self._manifest, shards=in_order(files))
                files += self._write_tables(group, make, start) if make else []
            files = [*(written.result() for written in snapshots), *files]
        self._manifest = replace(self._manifest, shards=in_order(files))
        self._fence()
        written = write_manifest(self._folder, self._manifest)
        self._stored = written.tokens
        self._sweep(written)
        return written

    def _sweep(self, manifest: Manifest) -> None:
        """Deletes what a stored manifest does not name; a large file may take a second."""
        self._swept.result()
        left = unnamed(self._folder, manifest)
        start = cast("Callable[..., Future[None]]", self._aside.submit if self._aside else done)
        self._swept = start(delete_files, self._folder, left)

    @contextmanager
    def _meanwhile(self) -> Iterator[Callable[..., Future[Shard]]]:
        """What starts calls: in other threads if files are written so, or at once."""
        if self._aside:
            with ThreadPoolExecutor(WRITERS, "longctx-snapshots") as disk:
                yield cast("Callable[..., Future[Shard]]", disk.submit)
        else:
            yield cast("Callable[..., Future[Shard]]", done)

    def _snapshot(self, group: str, rows: Rows, checkpoint: int | None) -> Shard:
        """The file of a snapshot; one that the last checkpoint has gets another name."""
        name, known = shard_name(group, 0, checkpoint), self._snapshots.get(group)
        if known and known.holds(rows):
            shard = linked(self._folder, known.shard, name)
        else:
            shard = write_tensors(self._folder, group, name, rows)
        self._snapshots[group] = _Saved(shard, rows)
        return shard

    def _folded(self, boundary: Boundary, snapshot: Rows | None) -> Rows:
        """What is stored of a boundary's snapshot; `growth` and `complete` ask for the same."""
        if not self._fold or self._fold[0] is not boundary or self._fold[1] is not snapshot:
            self._fold = boundary, snapshot, folded(boundary.snapshot, snapshot or {})
        return self._fold[2]

    def _kept_groups(self, bare: bool) -> dict[str, GroupWriter]:
        """The groups of rows that are kept: all, or where reading makes them again, no method's."""
        return {n: rows for n, rows in self._groups.items() if not bare or n in FOR_WORDS}

    def _write_tables(
        self, group: str, make: MakeTables, start: Callable[..., Future[Shard]]
    ) -> list[Shard]:
        """Writes word index or vectors of what the manifest describes, which is stored later."""
        kept: list[Shard] = []
        if self._shorter and self._made_alike(self._shorter, group):
            boundary = self._shorter.manifest.report.get("boundary", {})
            kept = unchanged_tables(self._shorter, boundary.get("tokens", 0), group)
            link_files(self._shorter.folder, self._folder, kept)
        elif self.drafted and self._has_text_of(self.drafted, group):
            kept = sound_tables(self.drafted, group)
            link_files(self.drafted.folder, self._folder, kept)
        document = Document(self._folder, self._manifest, FOR_WORDS)
        return write_tables(document, self._folder, group, make, kept, start)

    def _language(self) -> str:
        """The language of what the manifest describes."""
        return document_language(Document(self._folder, self._manifest, FOR_WORDS))

    def _made_alike(self, shorter: Document, group: str) -> bool:
        """Whether the tables of an appended document were made as those of the longer one are."""
        one, other = (
            manifest.language if group == WORDS else manifest.encoder
            for manifest in (shorter.manifest, self._manifest)
        )
        if one != other:
            return False
        pairs = zip(shorter.manifest.sources, self._manifest.sources, strict=False)
        return all(old.encoding == new.encoding for old, new in pairs)

    def _has_text_of(self, draft: Document, group: str) -> bool:
        """Whether a draft has the very text and tokens of the document, and tables made alike."""

        def text(manifest: Manifest) -> set[tuple[str, tuple[str, ...]]]:
            files = [shard for shard in manifest.shards if shard.group not in OF_PASSAGES]
            return {(file.file, file.blocks) for file in files if file.group in FOR_WORDS}

        same = text(draft.manifest) == text(self._manifest)
        return same and self._made_alike(draft, group)

    def _source_so_far(self) -> list[SourceRecord]:
        """The open source, if any of it has arrived."""
        source = self._open and self._closed_now(self._open)
        return [source] if source and (source.size or source.tokens) else []

    def _closed_now(self, source: SourceRecord) -> SourceRecord:
        tokens = self._groups["tokens"].rows - source.first_token
        return replace(source, sha256=self._sha256.hexdigest(), tokens=tokens)


class _Saved:
    """A file that was written, and of which tensors; it does not keep them."""

    def __init__(self, shard: Shard, rows: Rows):
        self.shard = shard
        self._rows = {name: weakref.ref(tensor) for name, tensor in rows.items()}

    def holds(self, rows: Rows) -> bool:
        """Whether it has these very tensors, which nobody changes."""
        known = self._rows
        return known.keys() == rows.keys() and all(known[name]() is rows[name] for name in rows)
