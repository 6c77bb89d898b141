"""The folders of a library, and moves between them that survive a kill at any moment.

A document is written under `unfinished/` and renamed to `documents/` when it is complete; what it
replaces is moved to a hidden name first. A folder is moved only under its lock. Of a folder's
content this module knows only what the manifest says.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from longctx.core.common.errors import Locked, LongctxError, StateMismatch
from longctx.core.store.claims import Claims
from longctx.core.store.confined import Confined
from longctx.core.store.durable import storing, write_text
from longctx.core.store.facts import Stamp
from longctx.core.store.locks import Locks
from longctx.core.store.manifest import DRAFT, FORMAT, MANIFEST, Manifest
from longctx.core.store.naming import NAME

DOCUMENTS, UNFINISHED, DRAFTS = "documents", "unfinished", "drafts"
PATIENCE = 60.0  # seconds that a new document waits for the readers of the one it replaces


class LibraryFolders:
    """Where the documents of a library are.

    Args:
        library: the library's folder.
    """

    def __init__(self, library: Path):
        self.library = Confined(library)
        self._locks = Locks(library, self._called)
        self._claims = Claims(library, self._called)

    def _called(self, key: str) -> str:
        """What people call the document that a lock's key (place/folder) is of."""
        return describe(self.best(key.rpartition("/")[2])).name

    def best(self, name: str) -> Confined:
        """The folder that has most of a document: complete, else its draft, else unfinished."""
        finished = self.finished(name)
        if finished.exists():
            return finished
        return self.draft(name) if self.has_draft(name) else self.unfinished(name)

    def finished(self, name: str) -> Confined:
        """The folder of a complete document."""
        return self.library / DOCUMENTS / name

    def unfinished(self, name: str) -> Confined:
        """The folder of a document whose writing has not ended, or was stopped."""
        return self.library / UNFINISHED / name

    def draft(self, name: str) -> Confined:
        """The folder of what is stored of a document before it is encoded: see `drafts.py`."""
        return self.library / DRAFTS / name

    def has_draft(self, name: str) -> bool:
        """Whether there is a whole draft of a document."""
        folder = self.draft(name)
        return folder.is_dir() and describe(folder).status == DRAFT

    def drafts(self) -> dict[str, Confined]:
        """The drafts of documents that are not complete, by folder."""
        found = [path for path in self.folders(DRAFTS) if self.has_draft(path.name)]
        return {path.name: path for path in found if self.best(path.name) == path}

    def aside(self, name: str) -> Confined:
        """The hidden name of a folder that is to be deleted."""
        return self.library / UNFINISHED / f".{name}.old"

    def incoming(self, name: str) -> Confined:
        """The folder of a document that is being received."""
        return self.library / UNFINISHED / f".{name}.new"

    def folders(self, place: str) -> list[Confined]:
        """All folders of documents in one of the two places, and links, which nothing opens.

        Raises:
            LongctxError: the place cannot be listed.
        """
        found = self.library / place
        try:
            named = [path for path in found.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise LongctxError(
                f"cannot look into '{found}'",
                exc.strerror or str(exc),
                "Put a folder in its place that you can read, or name another library with "
                "--library",
            ) from exc
        return [path for path in named if self._is_a_place(path)]

    def complete(self) -> dict[str, Confined]:
        """Folder of every complete document; if its last rename was cut off, it is still aside."""
        waiting = {path.name: path for path in self.waiting()}
        return waiting | {path.name: path for path in self.folders(DOCUMENTS)}

    def waiting(self) -> list[Confined]:
        """Folders of complete documents that only lack their last rename."""
        return [path for path in self.folders(UNFINISHED) if is_complete(path)]

    def stamps(self) -> dict[str, Stamp | None]:
        """The stamp of each manifest in `documents/`, by folder and in their order.

        None: it has none, or is a link, which nothing opens.

        Raises:
            LongctxError: the place cannot be listed.
        """
        try:
            found = (self.library / DOCUMENTS).inside_each(MANIFEST)
        except OSError:
            return {path.name: None for path in self.folders(DOCUMENTS)}  # says what is wrong
        unsure = [name for name, status in found.items() if status is None]
        others = {name for name in unsure if not self._is_a_place(self.finished(name))}
        return {
            name: stamp_of(status) if (status := found[name]) else None
            for name in sorted(found)
            if NAME.fullmatch(name) and name not in others
        }

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of the manifest of one complete document; None where there is none."""
        try:
            return stamp_of((self.finished(name) / MANIFEST).stat())
        except OSError:
            return None

    def _is_a_place(self, folder: Confined) -> bool:
        return folder.is_dir() or folder.is_link()

    @contextmanager
    def shared(self, folder: Confined) -> Iterator[None]:
        """Keep others from writing, moving or deleting a document's folder.

        Raises:
            Locked: somebody does.
            LongctxError: the library cannot be used.
        """
        with ExitStack() as held:
            with storing(folder):
                held.enter_context(self._locks.shared(f"{folder.parent.name}/{folder.name}"))
            yield

    @contextmanager
    def alone(self, name: str, *places: str, wait: float = 0.0) -> Iterator[None]:
        """Hold a document's places exclusively.

        Raises:
            Locked: somebody still uses it after `wait` seconds.
            LongctxError: the library cannot be written.
        """
        with ExitStack() as held:
            with storing(self.finished(name)):
                for place in (DOCUMENTS, UNFINISHED):
                    (self.library / place).mkdir(exist_ok=True)
                for place in places:
                    held.enter_context(self._locks.exclusive(f"{place}/{name}", wait))
                if UNFINISHED in places:
                    self._claims.require_free(name)
            yield

    @contextmanager
    def written(self, name: str) -> Iterator[Callable[[], None]]:
        """Hold unfinished/<name> exclusively, and claim it for hosts that do not see the lock.

        Yields:
            A check that the claim is still ours, for the writer: Locked if not.

        Raises:
            as `alone`.
        """
        with self.alone(name, UNFINISHED), ExitStack() as held:
            with storing(self.unfinished(name)):
                check = held.enter_context(self._claims.taken(name))
            yield check

    def is_held(self, folder: Confined) -> bool:
        """Whether a process reads, writes or moves a document's folder; only looks."""
        return self._locks.is_held(f"{folder.parent.name}/{folder.name}")

    # --- moves; the caller holds unfinished/<name> exclusively ---

    def publish(self, name: str) -> None:
        """Rename unfinished/<name> to documents/<name>; an old one is moved aside and deleted.

        Raises:
            Locked: the old one stays in use for longer than PATIENCE.
            LongctxError: the library cannot be written.
        """
        folder, target, aside = self.unfinished(name), self.finished(name), self.aside(name)
        sweep(folder, Manifest.read(folder))  # a kill may have come before the writer's own sweep
        try:
            with self.alone(name, DOCUMENTS, wait=PATIENCE), storing(target):
                self.delete(aside, name)
                if target.exists():
                    target.replace(aside)
                folder.replace(target)
                target.parent.sync()
                folder.parent.sync()
                self.delete(aside, name)
                self.delete_draft(name)
        except Locked as exc:
            raise Locked(
                f"the new '{describe(folder).name}' is complete but not in its place",
                exc.what,
                "Run the same command again when that is done",
            ) from exc

    def delete_draft(self, name: str) -> None:
        """Delete the draft of a complete document, unless somebody reads it: `gc` does then."""
        if self.draft(name).exists():
            with suppress(Locked), self.alone(name, DRAFTS):
                self.delete(self.draft(name), name)

    def publish_incoming(self, name: str) -> None:
        """Replace a document, or an unfinished one, with a folder that was received."""
        folder, place = self.incoming(name), self.unfinished(name)
        with storing(place):
            if place.exists():
                place.replace(self.aside(name))
            folder.replace(place)
            place.parent.sync()
        self.publish(name)

    def empty(self, folder: Confined, name: str) -> None:
        """Replace a folder, if there is one, with an empty one."""
        with storing(folder):
            self.delete(folder, name)
            folder.mkdir()

    def delete(self, folder: Confined, name: str) -> None:
        """Delete a folder, under a hidden name so that its remains are never opened.

        Where the disk has no room even for that name, the manifest is deleted first.
        """
        aside = self.aside(name)
        if not folder.exists():
            return
        if folder != aside:
            aside.delete()
            try:
                folder.replace(aside)
            except OSError as exc:
                if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                delete_folder(folder)
                return
            folder.parent.sync()
        delete_folder(aside)


def delete_folder(folder: Confined) -> None:
    """Deletes a folder, manifest first, so that no part of it opens; of a link only the link."""
    if folder.is_dir():
        (folder / MANIFEST).unlink(missing_ok=True)
    folder.delete()


def sweep(folder: Confined, manifest: Manifest) -> None:
    """Delete files that a folder's manifest does not name, such as those of an old checkpoint."""
    delete_files(folder, unnamed(folder, manifest))


def delete_files(folder: Confined, files: list[Confined]) -> None:
    """Deletes files of a folder."""
    with storing(folder):
        for path in files:
            path.unlink()


def unnamed(folder: Confined, manifest: Manifest) -> list[Confined]:
    """Files in a folder that its manifest does not name; folders are not ours."""
    named = {MANIFEST, *(shard.file for shard in manifest.shards)}
    return [p for p in folder.iterdir() if p.name not in named and not p.is_dir()]


def stamp_of(status: os.stat_result) -> Stamp | None:
    """The stamp of a manifest; None where it is no regular file."""
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def is_complete(folder: Confined) -> bool:
    """Whether a folder's manifest can be read and says "complete"."""
    return describe(folder).status == "complete"


def keeps_nothing(folder: Confined) -> bool:
    """Whether an unfinished folder has neither a document nor a checkpoint; False if unknown.

    A folder that is a link is somebody else's, and said to be damaged.
    """
    if folder.is_link():
        return False
    try:
        if not (folder / MANIFEST).exists():
            return True
        manifest = Manifest.read(folder)
    except (OSError, StateMismatch):
        return False
    return manifest.status == "reading" and not manifest.tokens


def describe(folder: Confined) -> Manifest:
    """The manifest of a folder, or one of status "damaged" that says why it cannot be read."""
    try:
        return Manifest.read(folder)
    except StateMismatch as exc:
        return Manifest(
            format=FORMAT,
            status="damaged",
            folder=folder.name,
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


def age(folder: Confined) -> int:
    """Modification time of the manifest in ns; 0 where it is gone."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def write_title(folder: Confined, title: str | None) -> None:
    """Give the document in a folder another title, under its lock; a damaged one has no title.

    Raises:
        StateMismatch: it is damaged and a title is to be set.
        LongctxError: it cannot be written.
    """
    if describe(folder).title == title:
        return
    manifest = replace(Manifest.read(folder), format=FORMAT, title=title)
    write_manifest(folder, manifest, age(folder))


def write_manifest(folder: Confined, manifest: Manifest, mtime_ns: int = 0) -> Manifest:
    """Writes a manifest with a modification time (0: now), and returns it as it reads back.

    Raises:
        ValueError: it would not read back, and nothing is written.
        LongctxError: it cannot be written.
    """
    text = manifest.to_json()
    written = Manifest.from_json(text, folder.name)
    write_text(folder, MANIFEST, text, mtime_ns or None)
    return written
