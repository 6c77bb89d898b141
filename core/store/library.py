"""A library: a folder of documents, each written once and read in part.

`Library` names documents, opens them, and grants the right to write or move one. A document gets
its name only when it is complete; a kill at any moment leaves the others as they were.
`holdings.py` tells which documents there are, `writer.py` makes one, `document.py` reads one,
`places.py` has the folders; `docs/format.md` specifies the files. This module knows nothing of what
a document holds.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from longctx.core.common.errors import Locked, LongctxError, NotFound, UsageError
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.drafts import drafting, encoded, not_encoded
from longctx.core.store.durable import storing
from longctx.core.store.holdings import Holdings
from longctx.core.store.library_file import LibraryFile
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.naming import NAME, folder_of, require_name
from longctx.core.store.places import (
    DOCUMENTS,
    DRAFTS,
    UNFINISHED,
    describe,
    is_complete,
    write_title,
)
from longctx.core.store.reopening import Longer
from longctx.core.store.shard_writer import SHARD_ROWS
from longctx.core.store.shards import FOR_WORDS
from longctx.core.store.writer import Writer, unfenced
from longctx.core.store.writing import begun_in, resumable, writing

REPLACED = "Give another name with --name, or --replace to put the new one there"


class Library(Holdings):
    """A folder of documents. Make one with `Library.open`."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._file = LibraryFile(path)

    @classmethod
    def open(cls, path: Path, create: bool = False, shared: bool = False) -> "Library":
        """Open the library in folder `path`; with `create`, make one where there is none yet.

        A new library is its owner's alone (rights 0700), or has the usual rights if `shared`.
        Whatever is later made in a library gets the rights that its folder has then.

        Raises:
            NotFound: there is none and `create` is false.
            UsageError: the folder holds other things, or `path` is a file.
            StateMismatch: it is a library of another format version.
            LongctxError: it cannot be made or looked into.
        """
        library = cls(Path(path))
        library._file.require(create, shared)
        return library

    def described(self, name: str) -> Manifest:
        """The manifest of the document in folder `name`, also of an unfinished or damaged one.

        Raises:
            NotFound: there is none.
        """
        folder = self._places.best(name)
        if folder.exists() and not self._is_left(folder):
            return describe(folder)
        return self.document(name).manifest

    def document(
        self, name: str, partial: bool = False, needed: Collection[str] | None = None
    ) -> Document:
        """Open a document.

        Args:
            name: the document's, or its folder's.
            partial: also open the last checkpoint of a document whose reading was stopped.
            needed: the groups that it is opened for; None: all. For those of its text and
                passages, the draft of a document will do.

        Raises:
            UsageError: several documents are meant.
            NotFound: there is none of this name, or it is not finished.
            Locked: another process is writing it.
            StateMismatch: it is damaged, or of another format version.
        """
        return Document(self._folder_of(self._existing(name), partial, needed), needed=needed)

    def opened(
        self, folder: str, partial: bool = False, needed: Collection[str] | None = None
    ) -> Document:
        """Open the document in this folder; as `document`, for a folder that is known."""
        return Document(self._folder_of(folder, partial, needed), needed=needed)

    @contextmanager
    def reading(
        self, name: str, partial: bool = False, needed: Collection[str] | None = None
    ) -> Iterator[Document]:
        """Open a document, as `document`, and keep others from deleting or replacing it meanwhile.

        Raises:
            as `document`; and Locked while it is being replaced or removed.
        """
        with self.holding(self._existing(name), partial, needed) as document:
            yield document

    @contextmanager
    def holding(
        self, name: str, partial: bool = False, needed: Collection[str] | None = None
    ) -> Iterator[Document]:
        """As `reading`, for the name of a folder that is known."""
        folder = self._folder_of(name, partial, needed)
        with ExitStack() as held:
            held.enter_context(self._places.shared(folder))
            if not folder.is_dir():  # published or removed since we looked
                folder = self._folder_of(name, partial, needed)
                held.enter_context(self._places.shared(folder))
            yield Document(folder, needed=needed)

    @contextmanager
    def writer(
        self,
        name: str,
        header: dict,
        replace: bool = False,
        differs: Callable[[Manifest], str] = lambda begun: "",
        shard_rows: int = SHARD_ROWS,
        updates: bool = False,
    ) -> Iterator[Writer]:
        """Write the document in folder `name`, exclusively, until the context ends.

        Without `Writer.complete`, what was written up to the last checkpoint stays, documents do
        not change, and the next writer of this name continues from there: `Writer.begun`.

        Args:
            name: the folder's, as `place_for` gives it: 1 to 100 of A-Z a-z 0-9 . _ -, the first
                not a dot.
            header: model, recorded, method, options, profile of the manifest; title and report if
                known.
            replace: the new document replaces one of this name when it is complete.
            differs: says why a writer cannot continue from a checkpoint; empty if it can.
            shard_rows: rows of a full shard.
            updates: the new document is a later state of the one of this name, and replaces it when
                it is complete; what was begun from something else stays.

        Raises:
            UsageError: a bad name; the document exists, or was begun from something else, and
                `replace` is false.
            Locked: another process writes it, or reads its last checkpoint.
            StateMismatch: the checkpoint is damaged, and `replace` is false.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        with self._places.written(name) as check:
            self._prepare(name, replace or updates, f"{REPLACED}; --append makes it longer.")
            yield writing(self._places, name, header, replace, differs, shard_rows, check)

    @contextmanager
    def longer(self, name: str) -> Iterator[Longer]:
        """Append to a complete document, exclusively, until the context ends.

        The document stays as it is, for readers too, until the longer one is complete.

        Raises:
            UsageError, NotFound: as `document`.
            Locked: another process writes it.
            StateMismatch: it is damaged.
            LongctxError: the library cannot be written.
        """
        with self._alone(name, claiming=True) as (finished, check):
            begun = begun_in(self._places.unfinished(finished.name))
            yield Longer(Document(finished), begun, self._places, fence=check)

    def draft(self, name: str) -> Document | None:
        """The draft in folder `name`, for whoever writes the document; None: there is none.

        Raises:
            StateMismatch: it is damaged.
        """
        has = self._places.has_draft(name)
        return Document(self._places.draft(name), needed=FOR_WORDS) if has else None

    def drop_draft(self, name: str) -> None:
        """Delete the draft in folder `name`, if there is one and nobody reads it.

        For whoever writes the document.
        """
        self._places.delete_draft(name)

    def drafting(
        self, name: str, header: dict, fence: Callable[[], None]
    ) -> AbstractContextManager[Writer]:
        """Write the draft in folder `name`, for whoever writes the document: see `drafts.py`."""
        return drafting(self._places, name, header, fence)

    def is_waiting(self, name: str) -> bool:
        """Whether a complete document waits for the readers of the one that it replaces."""
        return is_complete(self._places.unfinished(self._existing(name)))

    def settle(self, name: str) -> bool:
        """Publish the complete document in folder `name`, if only that was left to do.

        A draft that it has replaced is deleted.

        Returns:
            Whether it was.

        Raises:
            Locked: another process uses it, or reads the document that it replaces.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        if not is_complete(self._places.unfinished(name)):
            if self.is_finished(name) and self._places.draft(name).exists():
                with suppress(Locked), self._places.alone(name, UNFINISHED):
                    self._places.delete_draft(name)
            return False
        with self._places.alone(name, UNFINISHED):
            self._places.publish(name)
        return True

    @contextmanager
    def receiving(
        self, name: str, replace: bool = False
    ) -> Iterator[tuple[Confined, Callable[[], None]]]:
        """A folder to receive a whole document in, exclusively, until the context ends.

        Yields:
            The folder, empty and not visible as a document, and a callable that publishes it once
            it is filled. If that is not called, nothing changes.

        Args:
            name: as in `writer`, of the document's folder once it is published.
            replace: a document of this name, or a stopped reading of it, is replaced.

        Raises:
            UsageError: a bad name; or there is such a document or reading, and `replace` is false.
            Locked: another process writes it.
            StateMismatch: there is a damaged reading of this name, and `replace` is false.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        folder = self._places.incoming(name)
        with self._places.written(name) as check:

            def publish() -> None:
                check()
                self._places.publish_incoming(name)

            self._prepare(name, replace, f"{REPLACED}.")
            begun = self._places.unfinished(name)
            goes_on = "that reading can still be gone on with"
            resumable(begun, replace, lambda manifest: goes_on)
            if self._places.has_draft(name) and not replace:
                raise UsageError(f"'{self._shown(name)}' was begun", goes_on, f"{REPLACED}.")
            self._places.empty(folder, name)
            try:
                yield folder, publish
            finally:
                with suppress(OSError):
                    folder.delete()

    def remove(self, *names: str) -> None:
        """Delete documents, finished or not; none, unless all are there and not in use.

        A kill meanwhile leaves no part that opens.

        Raises:
            NotFound: there is none of a name.
            Locked: one is being written, or asked questions.
            LongctxError: one cannot be deleted.
        """
        names = tuple(dict.fromkeys(self.folder_named(name) for name in names))
        for name in names:
            if not any(place.exists() for place in self._all_of(name)):
                raise self._no_document(name)
        with ExitStack() as held:
            for name in names:
                held.enter_context(self._places.alone(name, UNFINISHED, DOCUMENTS, DRAFTS))
            for name in names:
                with storing(self._places.finished(name)):
                    for place in self._all_of(name):
                        self._places.delete(place, name)

    def _all_of(self, name: str) -> tuple[Confined, ...]:
        """Where something of a document may be."""
        places = self._places
        shown = places.draft(name), places.finished(name)  # the second hides the first
        return places.aside(name), *shown, places.unfinished(name)

    def rename(self, name: str, new: str) -> None:
        """Give a complete document another name, and its folder with it.

        A kill meanwhile may leave it with the new name in the old folder.

        Args:
            name: what a user calls it, as for `folder_named`.
            new: its new name, in any script.

        Raises:
            UsageError: a bad name, or there is a document `new`, or an unfinished one.
            NotFound, StateMismatch: as `document`.
            Locked: either is in use.
            LongctxError: the library cannot be written.
        """
        called, name = require_name(new), self.folder_named(name)
        source = self._folder_of(name, partial=False)
        new, _ = self.place_for(called)
        if new == name:  # a killed renaming goes on, where only the folder is called as before
            new = folder_of(called)
        if new == name:
            raise UsageError(f"the document '{called}' exists", remedy="Choose another name")
        target = self._places.finished(new)
        alone = self._places.alone
        with alone(name, UNFINISHED, DOCUMENTS, DRAFTS), alone(new, UNFINISHED):
            if not source.is_dir():  # published or removed since we looked
                source = self._folder_of(name, partial=False)
            others = target, self._places.unfinished(new), self._places.draft(new)
            if any(folder.exists() for folder in others):
                raise UsageError(f"the document '{called}' exists", remedy="Choose another name")
            self._places.delete(self._places.draft(name), name)  # of before it was complete
            write_title(source, None if new == called else called)
            with storing(target):
                source.replace(target)
                target.parent.sync()
                source.parent.sync()

    @contextmanager
    def _alone(
        self, name: str, claiming: bool = False
    ) -> Iterator[tuple[Confined, Callable[[], None]]]:
        """The folder of a complete document, which nobody else writes; readers stay.

        What an earlier run completed is published first.

        Yields:
            It, and a check for a writer, as `LibraryFolders.written` gives it if `claiming`.
        """
        name = self._existing(name)
        self._folder_of(name, partial=False)
        with ExitStack() as held:
            check = held.enter_context(
                self._places.written(name) if claiming else self._places.alone(name, UNFINISHED)
            )
            finished = self._places.finished(name)
            with storing(finished):
                if is_complete(self._places.unfinished(name)):
                    self._places.publish(name)
                self._places.delete(self._places.aside(name), name)
            if not finished.is_dir():  # removed since we looked
                raise self._no_document(name)
            yield finished, check or unfenced

    def _folder_of(
        self, name: str, partial: bool, needed: Collection[str] | None = None
    ) -> Confined:
        """The folder of a complete document or, with `partial`, of the last checkpoint.

        Args:
            name: the folder's.
            partial: whether an unfinished one will do.
            needed: the groups that are needed; None: all. Where they are those of text and
                passages, the draft will do.
        """
        finished, unfinished = self._places.finished(name), self._places.unfinished(name)
        if finished.is_dir() or finished.is_link():
            return finished
        if is_complete(unfinished):  # only its last rename is missing
            return unfinished
        if self._places.has_draft(name):
            if needed is not None and FOR_WORDS.issuperset(needed):
                return self._places.draft(name)
            if not (partial and describe(unfinished).tokens):
                raise self._not_encoded(name)
        if finished.is_dir():  # published since we looked
            return finished
        if not unfinished.is_dir():
            raise self._no_document(name)
        with self._places.shared(unfinished):  # raises Locked, which names its writer
            begun = describe(unfinished)
        unreadable = begun.status == "damaged" and (unfinished / MANIFEST).exists()
        if partial and (begun.tokens or unreadable):
            return unfinished
        raise NotFound(
            f"'{begun.name}' is not finished",
            f"its reading was stopped after {begun.tokens:,} tokens",
            "Run the same ingest command again"
            + ("; until then, `ask --partial` asks what was read." if begun.tokens else "."),
        )

    def _not_encoded(self, name: str) -> LongctxError:
        """The error for a draft where the encoding is needed."""
        draft, begun = self._places.draft(name), self._places.unfinished(name)
        held = None
        try:
            with self._places.shared(begun):
                pass
        except Locked as error:
            held = error
        how = encoded(describe(draft), describe(begun), held is not None)
        return not_encoded(describe(draft).name, how, held)

    def _prepare(self, name: str, replace: bool, remedy: str) -> None:
        """Make room for a writer: what an earlier run completed is published first."""
        places, finished = self._places, self._places.finished(name)
        with storing(finished):
            if is_complete(places.unfinished(name)):
                places.publish(name)
            if finished.exists() and not replace:
                raise UsageError(f"the document '{self._shown(name)}' exists", remedy=remedy)
            places.delete(places.aside(name), name)


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a document's folder",
            "such a name is 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot",
            "Choose another name",
        )
