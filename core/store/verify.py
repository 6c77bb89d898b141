"""Verifies documents: reads everything and compares it with what was written.

Each document is held under a lock meanwhile, so that it cannot be deleted. This module knows
nothing of what a document holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from longctx.core.common.errors import Locked, StateMismatch
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.places import LibraryFolders, describe
from longctx.core.store.shards import VECTORS, WORDS
from longctx.core.store.word_files import damaged_tables

OnProgress = Callable[[int, int], None]  # gets bytes done, and bytes in all
_CALLED = {WORDS: "word index", VECTORS: "index of vectors"}  # what people call them


@dataclass(frozen=True)
class Verified:
    """What checking a document found.

    Attributes:
        name: the document's.
        unfinished: whether it is the last checkpoint, or the draft, of one that is not complete.
        status: ok, damaged, or locked where it could not be checked.
        bytes: size of its state, if ok.
        error: what is wrong.
    """

    name: str
    unfinished: bool
    status: str
    bytes: int = 0
    error: str | None = None


def verify(
    library: Library, name: str | None = None, on_progress: OnProgress = lambda done, total: None
) -> Iterator[Verified]:
    """Reads every block of documents and checkpoints, and compares it with what was written.

    Also unpacks the text and compares it with the sources as read. An error in one document does
    not stop the others from being checked.

    Args:
        library: where they are.
        name: one document, as a user calls it; None: all.
        on_progress: called after every block; counts bytes of the files and of the text.

    Raises:
        UsageError: several documents are meant.
        NotFound: there is none of this name.
    """
    name = None if name is None else library.folder_named(name)
    folders = [path for path in library.folders() if name in (None, path.name) and _is_begun(path)]
    if name is not None and not folders:
        library.document(name, partial=True)  # raises what is wrong with the name
    sizes = [_bytes_to_check(folder) for folder in folders]
    for folder, begin in zip(folders, accumulate(sizes, initial=0), strict=False):
        told = partial(_tell, on_progress, begin, sum(sizes))
        found = _verify(library, folder, told)
        if found:
            yield found


def _tell(on_progress: OnProgress, begin: int, total: int, done: int) -> None:
    on_progress(begin + done, total)


def _is_begun(folder: Confined) -> bool:
    """Whether it is a document, or has a checkpoint, or cannot be opened."""
    try:
        (folder / MANIFEST).stat()
    except FileNotFoundError:
        return folder.parent.name == "documents"
    except OSError:
        return True
    return True


def _bytes_to_check(folder: Confined) -> int:
    try:
        manifest = Manifest.read(folder)
    except StateMismatch:
        return 0
    return manifest.size + sum(source.size for source in manifest.sources)


def _verify(library: Library, folder: Confined, on_done: Callable[[int], None]) -> Verified | None:
    """Checks one folder; None if it is gone meanwhile."""
    name, unfinished = describe(folder).name, folder.parent.name != "documents"
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        on_done(done)

    try:
        with LibraryFolders(library.path).shared(folder):
            if not folder.exists():
                return None
            document = Document(folder)
            document.verify(add)
            wrong = {group: damaged_tables(document, group, add) for group in _CALLED}
            if any(wrong.values()):
                return Verified(name, unfinished, "damaged", error=_told(wrong))
            return Verified(name, unfinished, "ok", document.size())
    except Locked as exc:
        return Verified(name, unfinished, "locked", error=str(exc))
    except StateMismatch as exc:
        return Verified(name, unfinished, "damaged", error=str(exc))


def _told(wrong: dict[str, dict[str, str]]) -> str:
    """The message for damaged files of a word index and of vectors, by group."""
    faults = []
    for group, found in wrong.items():
        files = "; ".join(f"'{file}': {why}" for file, why in found.items())
        faults += [f"its {_CALLED[group]} is damaged ({files})"] if found else []
    return (
        f"{' and '.join(faults)}, and nothing else is. Questions can be asked; ingest the document "
        "again with --replace to write it"
    )
