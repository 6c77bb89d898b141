"""Clearing a library: what no manifest names and no process uses is deleted.

Folder by folder; what another process uses is left alone, and so is what cannot be understood. A
kill on the way harms nothing. This module knows nothing of what a document holds.
"""

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from longctx.core.errors import Locked, StateMismatch
from longctx.core.store.durable import TEMPORARY, storing
from longctx.core.store.library import Library
from longctx.core.store.locks import FOLDER, Locks
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.places import unnamed

# A folder on its way to deletion, or into the library.
_HALF_DONE = re.compile(r"\.([A-Za-z0-9_-][A-Za-z0-9._-]{0,99})\.(?:old|new)")


@dataclass(frozen=True)
class Removed:
    """A file or folder that was deleted, or would be: its path in the library, its bytes."""

    path: str
    bytes: int


@dataclass(frozen=True)
class Kept:
    """A folder that was left alone, as a path in the library, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Swept:
    """What a sweep did, or would do."""

    removed: list[Removed] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes that were freed, or would be."""
        return sum(removed.bytes for removed in self.removed)


def sweep(library: Library, dry_run: bool = False) -> Swept:
    """Deletes what no manifest names and no process uses; a kill on the way harms nothing.

    That is: half-written files, files of a document's folder that its manifest does not name,
    folders on their way to deletion or into the library, readings that were stopped before their
    first checkpoint, and the locks of dead processes.

    Args:
        library: where.
        dry_run: only find it.

    Returns:
        What was deleted, and which folders were left alone because they are in use, or because
        their manifest cannot be read.

    Raises:
        LongctxError: something cannot be deleted.
    """
    found, locks = Swept(), _Leftovers(library.path)
    with storing(library.path / FOLDER):
        for path in [*library.path.glob(f"{TEMPORARY}*"), *locks.dead()]:
            found.removed.append(_remove(library.path, path, dry_run))
    for folder in _folders(library):
        try:
            _sweep(library.path, folder, dry_run, found)
        except (Locked, StateMismatch) as exc:
            found.kept.append(Kept(_inside(library.path, folder), _reason(exc)))
    if not dry_run:
        with storing(library.path / FOLDER):
            locks.remove_empty_folders()
    return found


def _folders(library: Library) -> list[Path]:
    """Folders of documents, and those that are half deleted or half received."""
    hidden = [p for p in (library.path / "unfinished").glob(".*") if _HALF_DONE.fullmatch(p.name)]
    return library.folders() + sorted(path for path in hidden if path.is_dir())


def _sweep(root: Path, folder: Path, dry_run: bool, found: Swept) -> None:
    """Sweeps one folder, alone, if there is anything to do.

    Raises:
        Locked: somebody uses it.
        StateMismatch: its manifest cannot be read.
        LongctxError: something cannot be deleted.
    """
    if not _garbage(folder):
        return
    half_done = _HALF_DONE.fullmatch(folder.name)
    name = half_done[1] if half_done else folder.name
    with storing(folder), Locks(root).exclusive(f"{folder.parent.name}/{name}"):
        if folder.is_dir():  # it may have gone since we looked
            found.removed.extend(_remove(root, path, dry_run) for path in _garbage(folder))


def _garbage(folder: Path) -> list[Path]:
    """What is of no use: the whole folder, or files in it.

    Raises:
        StateMismatch: the manifest cannot be read, so nobody knows.
    """
    unfinished = folder.parent.name == "unfinished"
    if folder.name.startswith(".") or (unfinished and not _has_manifest(folder)):
        return [folder]
    manifest = Manifest.read(folder)
    if unfinished and manifest.status == "reading" and not manifest.tokens:
        return [folder]
    return unnamed(folder, manifest)


def _has_manifest(folder: Path) -> bool:
    """Whether there is one; StateMismatch where nobody can say."""
    try:
        (folder / MANIFEST).lstat()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StateMismatch(f"cannot look into '{folder}'", exc.strerror or str(exc)) from exc
    return True


def _remove(root: Path, path: Path, dry_run: bool) -> Removed:
    """Deletes a file or a folder. Of a folder its manifest goes first: no part of it opens."""
    whole = path.is_dir() and not path.is_symlink()
    files = [file for file in path.rglob("*") if not file.is_dir()] if whole else [path]
    size = sum(file.lstat().st_size for file in files)
    if whole and not dry_run:
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    elif not dry_run:
        path.unlink(missing_ok=True)
    return Removed(_inside(root, path), size)


def _inside(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _reason(exc: Locked | StateMismatch) -> str:
    return f"{exc.what}: {exc.why}" if exc.why else exc.what


class _Leftovers(Locks):
    """What processes that are gone have left among the locks."""

    def dead(self) -> list[Path]:
        """Files of locks that nobody holds."""
        files = [p for p in (self._folder / FOLDER).rglob("*") if p.suffix in (".lock", ".json")]
        if not files:
            return []
        with self._gate():
            return sorted(path for path in files if path.exists() and self._is_free(path))

    def remove_empty_folders(self) -> None:
        """Deletes folders without locks while nobody can be about to use them."""
        folders = sorted((self._folder / FOLDER).rglob("*/"), reverse=True)
        if not folders:
            return
        with self._gate():
            for folder in folders:
                with suppress(OSError):  # not empty, or gone
                    folder.rmdir()

    def _is_free(self, path: Path) -> bool:
        lock = path.with_suffix(".lock")
        if not lock.exists():
            return True
        probe = FileLock(lock)
        try:
            probe.acquire(timeout=0)
        except (Timeout, PermissionError):  # PermissionError: it is another user's
            return False
        probe.release()
        return True
