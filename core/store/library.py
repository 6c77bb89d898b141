"""A library: a folder of documents, each written once and read in part.

`Library` names documents, opens them, and grants the right to write or move one. A document gets
its name only when it is complete; a kill at any moment leaves the others as they were.
`writer.py` makes a document, `document.py` reads one, `places.py` has the folders; `docs/format.md`
specifies the files. This module knows nothing of what a document holds.
"""

import gc
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from longctx.core.common.errors import LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.common.nearest import nearest
from longctx.core.store.catalogue import MANY, Catalogue
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.durable import TEMPORARY, make_folder, storing, write_text
from longctx.core.store.facts import UNKNOWN, Facts, Stamp
from longctx.core.store.manifest import FORMAT, FORMATS, MANIFEST, Manifest, canonical_json
from longctx.core.store.naming import (
    NAME,
    called_after,
    composed,
    folder_of,
    is_title,
    marked,
    require_name,
)
from longctx.core.store.places import (
    DOCUMENTS,
    UNFINISHED,
    LibraryFolders,
    age,
    describe,
    is_complete,
    keeps_nothing,
    write_title,
)
from longctx.core.store.reopening import Longer
from longctx.core.store.shard_writer import SHARD_ROWS
from longctx.core.store.shards import damaged
from longctx.core.store.writer import Writer, unfenced
from longctx.core.store.writing import begun_in, resumable, writing

_MARK_BYTES = 1 << 12  # limit for library.json


class Library:
    """A folder of documents. Make one with `Library.open`."""

    def __init__(self, path: Path):
        self.path = path
        self._root = Confined(path)
        self._mark = self._root / "library.json"
        self._places = LibraryFolders(path)

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
        if not library._is_library():
            library._make(create, shared)
        library._check_mark()
        return library

    def documents(self) -> list[Manifest]:
        """Manifests of all documents, then of unfinished ones; a damaged one says what is wrong.

        What a killed reading left before its first checkpoint is none.
        """
        with _no_collection():
            folders = [folder for folder in self.folders() if not self._is_left(folder)]
            return [describe(folder) for folder in folders]

    def facts(self) -> list[Facts]:
        """The facts of all documents, in the order of `documents`, without reading each manifest.

        Those of the complete ones come from the catalogue, where their manifests are as it says.
        """
        with _no_collection():
            begun = [folder for folder in self._places.folders(UNFINISHED)]
            unfinished = [_facts(folder) for folder in begun if not self._is_left(folder)]
            return self._complete() + unfinished

    def _complete(self) -> list[Facts]:
        """The facts of the documents in their place, by folder."""
        stamps = self._places.stamps()
        many = len(stamps) >= MANY
        catalogue = Catalogue(self._root)
        known = catalogue.read() if many else {}
        found = [
            known[name]
            if stamp and name in known and known[name].stamp == stamp
            else _facts(self._places.finished(name), stamp)
            for name, stamp in stamps.items()
        ]
        sound = [facts for facts in found if facts.status == "complete" and facts.stamp != UNKNOWN]
        if many and [facts.stamp for facts in sound] != [facts.stamp for facts in known.values()]:
            catalogue.write(sound)
        return found

    def _is_left(self, folder: Confined) -> bool:
        """Whether nothing was kept of a reading, and no process works on it."""
        return (
            folder.parent.name == UNFINISHED
            and keeps_nothing(folder)
            and not self._places.is_held(folder)
        )

    def folders(self) -> list[Confined]:
        """Folders of all documents, then of unfinished ones, whatever is in them."""
        return self._places.folders(DOCUMENTS) + self._places.folders(UNFINISHED)

    def names(self) -> list[str]:
        """Names of the folders of all complete documents."""
        return sorted(self._places.complete())

    def latest(self) -> str:
        """The folder's name of the document completed last; NotFound where there is none."""
        waiting = {folder.name: age(folder) for folder in self._places.waiting()}
        placed = {name: stamp[0] if stamp else 0 for name, stamp in self._places.stamps().items()}
        saved = waiting | placed
        if not saved:
            raise NotFound(
                f"the library '{self.path}' has no document", remedy="Run `longctx ingest` first"
            )
        return max(saved, key=lambda name: (saved[name], name))

    def folder_named(self, text: str) -> str:
        """The name of the folder of the document that a user means.

        Args:
            text: the document's name, in any script; or its folder's; or else a file that it was
                made of.

        Raises:
            UsageError: several documents are meant.
            NotFound: there is none.
        """
        return self._named(text, by_folder=True) or self._made_of(text) or self._existing(text)

    def place_for(self, name: str) -> tuple[str, str | None]:
        """Where the document of this name is, or a new one will be.

        Args:
            name: as `naming.require_name` or `called_after` gives it.

        Returns:
            The folder's name, and the title that the manifest has: None if the folder is called so.

        Raises:
            UsageError: several documents are called so.
        """
        name = composed(name)
        if is_title(name) and (found := self._named(name)):
            return found, None if found == name else name
        folder = folder_of(name)
        if self._is_there(folder) and self._described(folder).status != "damaged":
            folder = marked(name)  # another document has it: older versions named otherwise
        return folder, None if folder == name else name

    def _existing(self, name: str) -> str:
        """The folder of the document of this name, or else of this folder; NotFound if none is."""
        if not (found := self._named(name, by_folder=True)):
            raise self._no_document(name)
        return found

    def _named(self, text: str, by_folder: bool = False) -> str | None:
        """The folder of the document of this name; with `by_folder`, or else of this folder."""
        name, guess = composed(text), marked(text)
        if NAME.fullmatch(text) and self._is_there(text):
            if self._described(text).name == text:
                return text
            if by_folder and not (self._is_there(guess) and self._described(guess).name == text):
                return text
        titled = {facts.folder for facts in self.facts() if facts.name == name}
        if len(titled) > 1:
            raise UsageError(
                f"{len(titled)} documents are called '{text}'",
                f"their folders are {', '.join(sorted(titled))}",
                "Say which one by its folder",
            )
        return titled.pop() if titled else None

    def _made_of(self, text: str) -> str | None:
        """The folder of the document that was made of this file, which may be gone."""
        try:
            path = str(Path(os.path.expanduser(text)).resolve())
        except (OSError, RuntimeError, ValueError):  # such as a name with a NUL
            return None
        made = {facts.folder: facts.name for facts in self.facts() if path in facts.paths}
        if len(made) > 1:
            raise UsageError(
                f"{len(made)} documents were made of '{text}'",
                f"they are {', '.join(sorted(made.values()))}",
                "Say which one by its name",
            )
        return next(iter(made), None)

    def _is_there(self, folder: str) -> bool:
        # The unfinished first: it is moved to the finished ones.
        places = self._places.unfinished(folder), self._places.finished(folder)
        return any(place.is_dir() or place.is_link() for place in places) or (
            self._places.aside(folder).exists()
        )

    def _described(self, folder: str) -> Manifest:
        finished = self._places.finished(folder)
        return describe(finished if finished.exists() else self._places.unfinished(folder))

    def _shown(self, folder: str) -> str:
        """The name of the document in a folder; the folder's, where there is none."""
        return self._described(folder).name

    def known(self, name: str, manifest: Manifest) -> Facts:
        """The facts of the document in folder `name`, whose manifest was just read."""
        stamp = self._places.stamp(name) if manifest.status == "complete" else None
        folder = self._places.unfinished(name)
        return Facts.of(manifest, stamp or (age(folder), *UNKNOWN[1:]))

    def described(self, name: str) -> Manifest:
        """The manifest of the document in folder `name`, also of an unfinished or damaged one.

        Raises:
            NotFound: there is none.
        """
        for folder in (self._places.finished(name), self._places.unfinished(name)):
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
            needed: the groups that it is opened for; None: all.

        Raises:
            UsageError: several documents are meant.
            NotFound: there is none of this name, or it is not finished.
            Locked: another process is writing it.
            StateMismatch: it is damaged, or of another format version.
        """
        return Document(self._folder_of(self._existing(name), partial), needed=needed)

    def opened(
        self, folder: str, partial: bool = False, needed: Collection[str] | None = None
    ) -> Document:
        """Open the document in this folder; as `document`, for a folder that is known."""
        return Document(self._folder_of(folder, partial), needed=needed)

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
        folder = self._folder_of(name, partial)
        with self._places.shared(folder):
            if not folder.is_dir():  # published or removed since we looked
                folder = self._folder_of(name, partial)
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
            self._prepare(name, replace or updates)
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

    @contextmanager
    def changing(self, name: str) -> Iterator[Confined]:
        """The folder of a complete document, held exclusively, to change its manifest.

        The manifest is written last, and as a whole: until then the document is unchanged.

        Raises:
            UsageError, NotFound: as `document`.
            Locked: another process uses the document, or writes it.
            LongctxError: the library cannot be written.
        """
        with self._alone(name) as (finished, _), self._places.alone(finished.name, DOCUMENTS):
            yield finished

    def mark(self) -> None:
        """Record that no document is of an older format, if so.

        Raises:
            LongctxError: the library cannot be written.
        """
        complete = self._places.complete().values()
        if self.format < FORMAT and all(describe(p).format == FORMAT for p in complete):
            write_text(self._root, self._mark.name, canonical_json({"format": FORMAT}))

    @property
    def format(self) -> int:
        """The format that the library records."""
        return json.loads(self._mark.read_bytes(_MARK_BYTES))["format"]

    def is_waiting(self, name: str) -> bool:
        """Whether a complete document waits for the readers of the one that it replaces."""
        return is_complete(self._places.unfinished(self._existing(name)))

    def settle(self, name: str) -> bool:
        """Publish the complete document in folder `name`, if only that was left to do.

        Returns:
            Whether it was.

        Raises:
            Locked: another process uses it, or reads the document that it replaces.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        if not is_complete(self._places.unfinished(name)):
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

            self._prepare(name, replace)
            begun = self._places.unfinished(name)
            resumable(begun, replace, lambda manifest: "that reading can still be gone on with")
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
                held.enter_context(self._places.alone(name, UNFINISHED, DOCUMENTS))
            for name in names:
                with storing(self._places.finished(name)):
                    for place in self._all_of(name):
                        self._places.delete(place, name)

    def _all_of(self, name: str) -> tuple[Confined, ...]:
        """Where something of a document may be."""
        places = self._places
        return places.aside(name), places.finished(name), places.unfinished(name)

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
        with alone(name, UNFINISHED, DOCUMENTS), alone(new, UNFINISHED):
            if not source.is_dir():  # published or removed since we looked
                source = self._folder_of(name, partial=False)
            if target.exists() or self._places.unfinished(new).exists():
                raise UsageError(f"the document '{called}' exists", remedy="Choose another name")
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

    def _folder_of(self, name: str, partial: bool) -> Confined:
        """The folder of a complete document or, with `partial`, of the last checkpoint.

        Args:
            name: the folder's.
            partial: whether an unfinished one will do.
        """
        finished, unfinished = self._places.finished(name), self._places.unfinished(name)
        if finished.is_dir() or finished.is_link():
            return finished
        if is_complete(unfinished):  # only its last rename is missing
            return unfinished
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
            + (", or ask with --partial" if begun.tokens else ""),
        )

    def _prepare(self, name: str, replace: bool) -> None:
        """Make room for a writer: what an earlier run completed is published first."""
        places, finished = self._places, self._places.finished(name)
        with storing(finished):
            if is_complete(places.unfinished(name)):
                places.publish(name)
            if finished.exists() and not replace:
                raise UsageError(
                    f"the document '{self._shown(name)}' exists",
                    remedy="Give another name with --name, --replace to put the new one there, or "
                    "--append to make it longer",
                )
            places.delete(places.aside(name), name)

    def _no_document(self, name: str) -> NotFound:
        names = [facts.name for facts in self.facts()]
        what, why = f"no document '{name}' in the library '{self.path}'", "it holds no document"
        if not names:
            return NotFound(what, why, "Run `longctx ingest` to add one")
        if near := nearest(name, names) or nearest(called_after(name), names):
            return NotFound(what, f"the nearest name is '{near}'", "`longctx list` shows all")
        return NotFound(what, "", "`longctx list` shows what there is; `longctx ingest` adds one")

    def _make(self, create: bool, shared: bool) -> None:
        """Make the library; if another process does so meanwhile, that one is used."""
        if self._is_something_else():
            if self._is_library():  # since we looked: a library's mark comes first
                return
            raise UsageError(
                f"'{self.path}' is not a longctx library",
                "it holds other things and no library.json",
                "Name an empty or new folder, or a library, with --library",
            )
        if not create:
            raise NotFound(
                f"no library at '{self.path}'",
                remedy="Run `longctx ingest` to make one, or name another with --library",
            )
        try:
            with storing(self.path):
                self._make_folder(shared)
            write_text(self._root, self._mark.name, canonical_json({"format": FORMAT}))
        except LongctxError as error:
            raced = isinstance(error.__cause__, FileExistsError | PermissionError | None)
            if not (raced and self._is_library()):
                raise

    def _make_folder(self, shared: bool) -> None:
        """Make the library's folder. An empty one becomes private, unless it is shared.

        A folder that its owner gave to a group (setgid), or another user's, stays as it is.
        """
        if not self.path.exists():
            make_folder(self.path, 0o777 & ~_umask() if shared else 0o700)
            return
        status = self.path.stat()
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if mine and not shared and not status.st_mode & stat.S_ISGID:
            self.path.chmod(0o700)

    def _is_library(self) -> bool:
        try:
            return self._mark.is_file()
        except OSError as exc:
            raise LongctxError(
                f"cannot open the library '{self.path}'",
                exc.strerror,
                "Name another with --library",
            ) from exc

    def _is_something_else(self) -> bool:
        try:  # one check: between two, another process may make the folder
            return any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir())
        except FileNotFoundError:
            return False
        except NotADirectoryError:  # it, or its parent, is a file
            return self.path.exists()

    def _check_mark(self) -> None:
        try:
            found = json.loads(self._mark.read_bytes(_MARK_BYTES))
        except (OSError, ValueError) as exc:
            raise damaged(self._mark, str(exc)) from exc
        if found not in [{"format": number} for number in FORMATS]:
            raise StateMismatch(
                f"the library '{self.path}' is {found}",
                f"this longctx uses formats {' and '.join(map(str, FORMATS))}",
                "Name another folder with --library",
            )


def _facts(folder: Confined, stamp: Stamp | None = None) -> Facts:
    """The facts of a document's folder; the stamp was taken before, and may be one too old."""
    return Facts.of(describe(folder), stamp or (age(folder), *UNKNOWN[1:]))


def _umask() -> int:
    """The rights that the process removes from new files."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a document's folder",
            "such a name is 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot",
            "Choose another name",
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pauses garbage collection: a thousand manifests have many parts, but no reference cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
