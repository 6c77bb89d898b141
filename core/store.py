"""The library on disk: a folder of documents, each written once and read in part.

`Library` names documents, finds and deletes them, locks the one that is written and puts it in its
place. A document has its name only when it is complete; a kill at any moment leaves the others as
they were. `writer.py` makes a document, `document.py` reads one, `manifest.py` is what one records
of itself; `docs/format.md` specifies the files. This module knows nothing of what a document holds.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from longctx.core.document import Document
from longctx.core.durable import TEMPORARY, storing, sync_folder, write_text
from longctx.core.errors import Locked, LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.manifest import FORMAT, MANIFEST, Manifest, canonical_json
from longctx.core.shard_writer import SHARD_ROWS
from longctx.core.shards import damaged
from longctx.core.writer import Writer

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")


class Library:
    """A folder of documents. Make one with `Library.open`."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def open(cls, path: Path, create: bool = False) -> "Library":
        """Open the library in folder `path`, with `create` also where there is none yet.

        Raises:
            NotFound: there is none and `create` is false.
            UsageError: the folder holds other things, or `path` is a file.
            StateMismatch: it is a library of another format version.
            LongctxError: it cannot be made or looked into.
        """
        library = cls(Path(path))
        mark = library.path / "library.json"
        if library._is_library(mark):
            library._check_mark(mark)
        elif library._is_something_else():
            raise UsageError(
                f"'{path}' is not a longctx library",
                "it holds other things and no library.json",
                "Name an empty or new folder, or a library, with --library",
            )
        elif not create:
            raise NotFound(
                f"no library at '{path}'",
                remedy="Run `longctx ingest` to make one, or name another with --library",
            )
        else:
            with storing(library.path):
                library.path.mkdir(parents=True, exist_ok=True)
            write_text(library.path, mark.name, canonical_json({"format": FORMAT}))
        return library

    def documents(self) -> list[Manifest]:
        """Manifests of all documents, then of the unfinished; damaged ones by name and reason."""
        folders = self._folders("documents") + self._folders("unfinished")
        return [_describe(folder) for folder in folders]

    def latest(self) -> str:
        """The name of the document that was completed last; NotFound where there is none."""
        folders = self._complete()
        if not folders:
            raise NotFound(
                f"the library '{self.path}' has no document", remedy="Run `longctx ingest` first"
            )
        return max(folders.values(), key=lambda folder: (_age(folder), folder.name)).name

    def document(self, name: str) -> Document:
        """Open a complete document.

        Raises:
            UsageError: the name is not one that a document can have.
            NotFound: there is none of this name, or it is not finished.
            StateMismatch: it is damaged, or of another format version.
        """
        _check_name(name)
        finished, unfinished = self.path / "documents" / name, self.path / "unfinished" / name
        if finished.is_dir():
            return Document(finished)
        if _is_complete(unfinished):  # only its last rename was cut off
            return Document(unfinished)
        if unfinished.is_dir():
            raise NotFound(
                f"'{name}' is not finished",
                "it is being read, or its reading was stopped",
                "Wait, or run the same ingest command again",
            )
        raise self._no_document(name)

    @contextmanager
    def writer(
        self, name: str, header: dict, replace: bool = False, shard_rows: int = SHARD_ROWS
    ) -> Iterator[Writer]:
        """Write document `name`, alone, until the context ends.

        Without `Writer.complete` the folder stays under unfinished/ and documents do not change.

        Args:
            name: 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot.
            header: model, recorded, method, options, profile of the manifest; report if known.
            replace: a document of this name gives way when the new one is complete.
            shard_rows: rows of a full shard.

        Raises:
            UsageError: a bad name, or the document exists and `replace` is false.
            Locked: another writer has it.
            LongctxError: the library cannot be written.
        """
        _check_name(name)
        with self._locked(name):
            folder = self._prepare(name, replace)
            yield Writer(folder, header, shard_rows, lambda: self._publish(name))

    def remove(self, name: str) -> None:
        """Delete a document, finished or not. A kill on the way leaves no part that opens.

        Raises:
            NotFound: there is none of this name.
            Locked: it is being written.
            LongctxError: it cannot be deleted.
        """
        _check_name(name)
        aside = self._aside(name)
        places = (aside, self.path / "documents" / name, self.path / "unfinished" / name)
        if not any(place.exists() for place in places):
            raise self._no_document(name)
        with self._locked(name), storing(places[1]):
            for place in places:
                self._delete(place, aside)

    def _prepare(self, name: str, replace: bool) -> Path:
        """An empty unfinished folder; what an earlier run left there is finished or deleted."""
        folder, aside = self.path / "unfinished" / name, self._aside(name)
        with storing(folder):
            if _is_complete(folder):
                self._publish(name)
            if (self.path / "documents" / name).exists() and not replace:
                raise UsageError(
                    f"the document '{name}' exists",
                    remedy="Give another name with --name, or --replace to read it anew",
                )
            self._delete(aside, aside)
            self._delete(folder, aside)
            folder.mkdir()
        return folder

    def _publish(self, name: str) -> None:
        """Rename unfinished/<name> to documents/<name>; an old one steps aside and is deleted."""
        folder, aside = self.path / "unfinished" / name, self._aside(name)
        target = self.path / "documents" / name
        with storing(target):
            self._delete(aside, aside)
            if target.exists():
                target.replace(aside)
            folder.replace(target)
            sync_folder(target.parent)
            sync_folder(folder.parent)
            self._delete(aside, aside)

    def _delete(self, folder: Path, aside: Path) -> None:
        """Delete a folder, under a hidden name so that what is left of it is never opened."""
        if not folder.exists():
            return
        if folder != aside:
            folder.replace(aside)
            sync_folder(folder.parent)
        shutil.rmtree(aside)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the document's lock. It dies with the process; its file is removed after use.

        A lock file may be removed only while nobody else can be about to lock it: taking and
        leaving the lock are both done under one lasting lock of the library, held for an instant.
        """
        place = self.path / "unfinished" / f".{name}.lock"
        busy = Locked(
            f"'{name}' is being written by another process",
            remedy="Wait until it is done, or choose another name",
        )
        with storing(place):
            for folder in (self.path / "documents", self.path / "unfinished"):
                folder.mkdir(exist_ok=True)
            sync_folder(self.path)
            lock = FileLock(place, thread_local=False)
            try:
                with self._gate():
                    lock.acquire(timeout=0)
            except Timeout as exc:
                raise busy from exc
        try:
            yield
        finally:
            with self._gate():
                lock.release()
                place.unlink(missing_ok=True)

    def _gate(self) -> FileLock:
        return FileLock(self.path / ".lock", timeout=60)

    def _aside(self, name: str) -> Path:
        return self.path / "unfinished" / f".{name}.old"

    def _folders(self, place: str) -> list[Path]:
        found = (self.path / place).glob("*")
        return sorted(path for path in found if path.is_dir() and _NAME.fullmatch(path.name))

    def _complete(self) -> dict[str, Path]:
        """Folder of every complete document; one whose last rename was cut off is still aside."""
        waiting = {path.name: path for path in self._folders("unfinished") if _is_complete(path)}
        return waiting | {path.name: path for path in self._folders("documents")}

    def _no_document(self, name: str) -> NotFound:
        names = ", ".join(sorted(self._complete())) or "no document"
        return NotFound(
            f"no document '{name}' in the library '{self.path}'",
            f"it holds {names}",
            "Run `longctx ingest` to add one",
        )

    def _is_library(self, mark: Path) -> bool:
        try:
            return mark.is_file()
        except OSError as exc:
            raise LongctxError(
                f"cannot open the library '{self.path}'",
                exc.strerror,
                "Name another with --library",
            ) from exc

    def _is_something_else(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not p.name.startswith(TEMPORARY) for p in self.path.iterdir())

    def _check_mark(self, mark: Path) -> None:
        try:
            found = json.loads(mark.read_bytes())
        except (OSError, ValueError) as exc:
            raise damaged(mark, str(exc)) from exc
        if found != {"format": FORMAT}:
            raise StateMismatch(
                f"the library '{self.path}' is {found}",
                f"this longctx uses format {FORMAT}",
                "Name another folder with --library",
            )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a document",
            "a name is 1 to 100 of A-Z a-z 0-9 . _ -, the first not a dot",
            "Choose another with --name",
        )


def _is_complete(folder: Path) -> bool:
    return _describe(folder).status == "complete"


def _describe(folder: Path) -> Manifest:
    """The manifest of a folder, or one of status "damaged" that says why there is none."""
    try:
        return Manifest.read(folder)
    except StateMismatch as exc:
        return Manifest(
            format=FORMAT,
            status="damaged",
            name=folder.name,
            tokens=0,
            sources=(),
            model={},
            recorded={},
            method="",
            options={},
            profile={},
            report={"error": str(exc)},
            shards=(),
        )


def _age(folder: Path) -> int:
    """Modification time of the manifest in ns; 0 where it has gone."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0
