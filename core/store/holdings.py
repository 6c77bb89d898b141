"""What a library holds: the facts of its documents, and which of them a user means by a name.

Nothing is opened or changed here, but for the catalogue, which keeps the facts at hand.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from longctx.core.common import pasting
from longctx.core.common.collection import no_collection
from longctx.core.common.errors import NotFound, UsageError
from longctx.core.common.nearest import nearest
from longctx.core.store.catalogue import MANY, Catalogue
from longctx.core.store.confined import Confined
from longctx.core.store.drafts import Encoded, encoded
from longctx.core.store.facts import UNKNOWN, Facts, Stamp
from longctx.core.store.manifest import Manifest
from longctx.core.store.naming import (
    NAME,
    called_after,
    clipped,
    composed,
    folder_of,
    is_title,
    marked,
    shown,
    visible,
)
from longctx.core.store.places import (
    DOCUMENTS,
    DRAFTS,
    UNFINISHED,
    LibraryFolders,
    age,
    describe,
    is_complete,
    keeps_nothing,
)


class Holdings:
    """The documents of the library in a folder, finished and unfinished."""

    def __init__(self, path: Path):
        self.path = path
        self._root = Confined(path)
        self._places = LibraryFolders(path)

    def documents(self) -> list[Manifest]:
        """Manifests of all documents, then of unfinished ones; a damaged one says what is wrong.

        An unfinished one is described by its draft, if it has one. What a killed reading left
        before its first checkpoint is none.
        """
        with no_collection():
            begun = self._begun()  # first: they are moved to the others
            return [describe(folder) for folder in (*self._places.folders(DOCUMENTS), *begun)]

    def facts(self) -> list[Facts]:
        """The facts of all documents, in the order of `documents`, without reading each manifest.

        Those of the complete ones come from the catalogue, where their manifests are as it says.
        """
        with no_collection():
            unfinished = self._unfinished()  # first: they are moved to the others
            return self._complete(self._places.stamps()) + unfinished

    def facts_and_latest(self) -> tuple[list[Facts], str]:
        """The same, and what `latest` says, from one look; empty where there is no document."""
        with no_collection():
            unfinished = self._unfinished()
            stamps = self._places.stamps()
            waiting = {each.folder: each.saved for each in unfinished if each.status != "reading"}
            return self._complete(stamps) + unfinished, _latest(waiting, stamps)

    def _unfinished(self) -> list[Facts]:
        return [_facts(folder) for folder in self._begun()]

    def _begun(self) -> list[Confined]:
        """The folders of documents that are not in their place: the draft, where there is one."""
        unfinished = {folder.name: folder for folder in self._places.folders(UNFINISHED)}
        drafts = self._places.drafts()
        drafts = {
            n: f for n, f in drafts.items() if n not in unfinished or not is_complete(unfinished[n])
        }
        kept = {n: f for n, f in unfinished.items() if not self._is_left(f)}
        return [*(kept | drafts).values()]

    def encoded(self, folder: str) -> Encoded | None:
        """How far the encoding of a document is; None: it has no draft, or is complete."""
        if folder not in self._places.drafts():
            return None
        draft, begun = self._places.draft(folder), self._places.unfinished(folder)
        return encoded(describe(draft), describe(begun), self._places.is_held(begun))

    def _complete(self, stamps: dict[str, Stamp | None]) -> list[Facts]:
        """The facts of the documents in their place, by folder."""
        many = len(stamps) >= MANY
        catalogue = Catalogue(self._root)
        known = catalogue.read() if many else {}
        found = [
            known[name]
            if stamp and name in known and known[name].stamp == stamp
            else _facts(self._places.finished(name), stamp)
            for name, stamp in stamps.items()
        ]
        sound = [facts for facts in found if _is_whole(facts) and facts.stamp != UNKNOWN]
        if many and _stamps(sound) != _stamps(known.values()):
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
        """Folders of all documents, then of unfinished ones and drafts, whatever is in them."""
        places = DOCUMENTS, UNFINISHED, DRAFTS
        return [folder for place in places for folder in self._places.folders(place)]

    def names(self) -> list[str]:
        """Names of the folders of all complete documents."""
        return sorted(self._places.complete())

    def latest(self) -> str:
        """The folder's name of the document completed, or drafted, last.

        Raises:
            NotFound: there is none.
        """
        waiting = {folder.name: age(folder) for folder in self._places.waiting()}
        waiting = {name: age(folder) for name, folder in self._places.drafts().items()} | waiting
        if not (found := _latest(waiting, self._places.stamps())):
            raise NotFound(
                f"the library '{self.path}' has no document", remedy="Run `longctx ingest` first"
            )
        return found

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
        if self.is_there(folder) and self._described(folder).status != "damaged":
            folder = marked(name)  # another document has it: older versions named otherwise
        return folder, None if folder == name else name

    def _existing(self, name: str) -> str:
        """The folder of the document of this name, or else of this folder; NotFound if none is."""
        if not (found := self._named(name, by_folder=True)):
            raise self._no_document(name)
        return found

    def _named(self, text: str, by_folder: bool = False) -> str | None:
        """The folder of the document of this name; with `by_folder`, or else of this folder."""
        name, guess = shown(composed(text)), marked(text)
        if NAME.fullmatch(text) and self.is_there(text):
            if self._described(text).name == text:
                return text
            if by_folder and not (self.is_there(guess) and self._described(guess).name == text):
                return text
        titled = {facts.folder for facts in self.facts() if facts.name == name}
        if len(titled) > 1:
            raise UsageError(
                f"{len(titled)} documents are called '{clipped(name)}'",
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
                f"{len(made)} documents were made of '{clipped(text)}'",
                f"they are {', '.join(sorted(made.values()))}",
                "Say which one by its name",
            )
        return next(iter(made), None)

    def is_there(self, folder: str) -> bool:
        """Whether there is anything of the document in this folder."""
        # The unfinished first: it is moved to the finished ones.
        of = self._places
        places = of.draft(folder), of.unfinished(folder), of.finished(folder)
        return any(place.is_dir() or place.is_link() for place in places) or (
            self._places.aside(folder).exists()
        )

    def is_finished(self, folder: str) -> bool:
        """Whether a document is in its place, sound or damaged."""
        return self._places.finished(folder).exists()

    def _described(self, folder: str) -> Manifest:
        return describe(self._places.best(folder))

    def _shown(self, folder: str) -> str:
        """The name of the document in a folder; the folder's, where there is none."""
        return self._described(folder).name

    def known(self, name: str, manifest: Manifest) -> Facts:
        """The facts of the document in folder `name`, whose manifest was just read."""
        stamp = self._places.stamp(name) if manifest.status == "complete" else None
        folder = self._places.best(name)
        return Facts.of(manifest, stamp or (age(folder), *UNKNOWN[1:]))

    def _no_document(self, name: str) -> NotFound:
        names = {visible(facts.title or facts.folder): facts.name for facts in self.facts()}
        what = f"no document '{clipped(name)}' in the library '{self.path}'"
        why = "it holds no document"
        if os.path.isfile(name):
            why = "it is a file, and no document of this name was read"
            return NotFound(what, why, f"`longctx ingest {pasting.file(name)}` reads it")
        if not names:
            return NotFound(what, why, "Run `longctx ingest` to add one")
        if near := nearest(name, names) or nearest(called_after(name), names):
            return NotFound(
                what, f"the nearest name is '{names[near]}'", "`longctx list` shows all"
            )
        return NotFound(what, "", "`longctx list` shows what there is; `longctx ingest` adds one")


def _facts(folder: Confined, stamp: Stamp | None = None) -> Facts:
    """The facts of a document's folder; the stamp was taken before, and may be one too old."""
    return Facts.of(describe(folder), stamp or (age(folder), *UNKNOWN[1:]))


def _is_whole(facts: Facts) -> bool:
    return facts.status == "complete"


def _stamps(found: Iterable[Facts]) -> list[tuple[str, Stamp]]:
    """What tells whether facts are still those of these folders."""
    return [(facts.folder, facts.stamp) for facts in found]


def _latest(waiting: dict[str, int], stamps: dict[str, Stamp | None]) -> str:
    """The folder of the document saved last; of those without a place only the time is known."""
    saved = waiting | {name: stamp[0] if stamp else 0 for name, stamp in stamps.items()}
    return max(saved, key=lambda name: (saved[name], name), default="")
