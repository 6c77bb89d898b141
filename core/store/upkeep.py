"""Garbage collection: deletes what no manifest names and no process uses.

It goes folder by folder, and leaves alone what another process uses or what cannot be read. A kill
meanwhile does no harm. This module knows nothing of what a document holds.
"""

import os
import re
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from longctx.core.common.errors import Locked, StateMismatch
from longctx.core.store.claims import Claims
from longctx.core.store.confined import Confined
from longctx.core.store.durable import TEMPORARY, storing
from longctx.core.store.library import Library
from longctx.core.store.locks import FOLDER, Locks, is_held
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.places import DOCUMENTS, DRAFTS, UNFINISHED, delete_folder, unnamed

# A folder that is being deleted or received.
_HALF_DONE = re.compile(r"\.([A-Za-z0-9_-][A-Za-z0-9._-]{0,99})\.(?:old|new)")


@dataclass(frozen=True)
class Removed:
    """A file or folder that was deleted, or would be: its path in the library, its bytes."""

    path: str
    bytes: int


@dataclass(frozen=True)
class LeftAlone:
    """A folder that was left alone, as a path in the library, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Swept:
    """What a sweep did, or would do."""

    removed: list[Removed] = field(default_factory=list)
    kept: list[LeftAlone] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes that were freed, or would be."""
        return sum(removed.bytes for removed in self.removed)


def sweep(library: Library, dry_run: bool = False) -> Swept:
    """Deletes what no manifest names and no process uses; a kill meanwhile does no harm.

    That is: half-written files, files in a document's folder that its manifest does not name,
    folders that were being deleted or received, readings that were stopped before their first
    checkpoint, and the locks and claims of dead processes.

    Args:
        library: the library.
        dry_run: only find them.

    Returns:
        What was deleted, and which folders were left alone because they are in use or have a
        manifest that cannot be read.

    Raises:
        LongctxError: something cannot be deleted.
    """
    found, root = Swept(), Confined(library.path)
    locks = _Leftovers(library.path)
    with storing(root / FOLDER):
        temporary = [path for path in root.iterdir() if path.name.startswith(TEMPORARY)]
        for path in [*temporary, *locks.dead()]:
            found.removed.append(_remove(path, dry_run))
        _sweep_claims(library, dry_run, found)
    for folder in _folders(library):
        try:
            _sweep(library, folder, dry_run, found)
        except (Locked, StateMismatch) as exc:
            found.kept.append(LeftAlone(folder.inside, exc.reason))
    if not dry_run:
        with storing(root / FOLDER):
            locks.remove_empty_folders()
    return found


def _folders(library: Library) -> list[Confined]:
    """Folders of documents, and those that are half deleted or half received."""
    place = Confined(library.path) / UNFINISHED
    inside = place.iterdir() if place.is_dir() else []
    hidden = [path for path in inside if _HALF_DONE.fullmatch(path.name)]
    return library.folders() + hidden


def _sweep_claims(library: Library, dry_run: bool, found: Swept) -> None:
    """Deletes claims that give no sign of life and whose documents nobody holds the lock of.

    A process that was stopped (Ctrl-Z) gives none either, but keeps its lock, and goes on later.
    """
    claims, locks = Claims(library.path), Locks(library.path)
    for name in [name for name in claims.documents() if claims.left(name)]:
        with suppress(Locked), locks.exclusive(f"{UNFINISHED}/{name}"):
            found.removed.extend(_remove(path, dry_run) for path in claims.left(name))


def _sweep(library: Library, folder: Confined, dry_run: bool, found: Swept) -> None:
    """Sweeps one folder, held exclusively, if there is anything to do.

    Raises:
        Locked: somebody uses it.
        StateMismatch: its manifest cannot be read.
        LongctxError: something cannot be deleted.
    """
    if not _garbage(folder):
        return
    half_done = _HALF_DONE.fullmatch(folder.name)
    name = half_done[1] if half_done else folder.name
    locks, place = Locks(library.path), folder.parent.name
    with storing(folder), ExitStack() as held:
        for key in (UNFINISHED, DRAFTS) if place == DRAFTS else (place,):  # its writer holds both
            held.enter_context(locks.exclusive(f"{key}/{name}"))
        if place != DOCUMENTS:
            Claims(library.path).require_free(name)
        if folder.exists():  # it may be gone since we looked
            found.removed.extend(_remove(path, dry_run) for path in _garbage(folder))


def _garbage(folder: Confined) -> list[Confined]:
    """What is not needed: the whole folder, or files in it.

    Raises:
        StateMismatch: the manifest cannot be read, so that is unknown.
    """
    unfinished = folder.parent.name != DOCUMENTS
    useless = folder.name.startswith(".") or folder.is_link() or not _has_manifest(folder)
    if unfinished and useless:
        return [folder]
    manifest = Manifest.read(folder)
    if unfinished and manifest.status == "reading" and not manifest.tokens:
        return [folder]
    if folder.parent.name == DRAFTS and (folder.parent.parent / DOCUMENTS / folder.name).exists():
        return [folder]
    return unnamed(folder, manifest)


def _has_manifest(folder: Confined) -> bool:
    """Whether there is one; StateMismatch where that is unknown."""
    try:
        (folder / MANIFEST).stat()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StateMismatch(f"cannot look into '{folder}'", exc.strerror or str(exc)) from exc
    return True


def _remove(path: Confined, dry_run: bool) -> Removed:
    """Deletes a file, a folder, or a link but not its target."""
    files = [path for path in path.tree() if not path.is_dir()] if path.is_dir() else [path]
    size = 0
    for file in files:
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    if not dry_run:
        delete_folder(path)
    return Removed(path.inside, size)


class _Leftovers(Locks):
    """Locks that dead processes left behind."""

    def dead(self) -> list[Confined]:
        """Lock files that nobody holds."""
        files = [p for p in self._all() if p.name.endswith((".lock", ".json"))]
        if not files:
            return []
        with self._gate():
            return [path for path in files if path.exists() and self._is_free(path)]

    def remove_empty_folders(self) -> None:
        """Deletes folders without locks, while nobody can start to use them."""
        folders = [path for path in self._all() if path.is_dir()]
        if not folders:
            return
        with self._gate():
            for folder in reversed(folders):
                with suppress(OSError):  # not empty, or gone
                    folder.rmdir()

    def _all(self) -> list[Confined]:
        locks = self._folder / FOLDER
        return [*locks.tree()] if locks.is_dir() else []

    def _is_free(self, path: Confined) -> bool:
        lock = path.with_suffix(".lock")
        if not lock.is_file():
            return not lock.exists()
        try:
            return not is_held(lock)
        except PermissionError:  # it is another user's
            return False


def open_to_others(library: Library) -> list[Confined]:
    """What users other than its owner may read or write in a library, its folder first."""
    root = Confined(library.path)
    return [path for path in (root, *root.tree()) if _rights(path) & 0o077]


def make_private(library: Library) -> int:
    """Takes all rights from other users; returns how many files and folders gave them some.

    Raises:
        LongctxError: something is not ours.
    """
    found = open_to_others(library)
    for path in found:
        with storing(path), suppress(FileNotFoundError):
            path.chmod(_rights(path) & 0o700)
    return len(found)


def _rights(path: Confined) -> int:
    """The rights of a file or folder; 0 for a link, which has none of its own."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        return 0 if os.name == "nt" or stat.S_ISLNK(mode) else stat.S_IMODE(mode)
    return 0
