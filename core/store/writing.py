"""The writer of a document: new, or going on from what a stopped reading left."""

from collections.abc import Callable
from functools import partial
from typing import Any

from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.places import LibraryFolders
from longctx.core.store.writer import Writer


def writing(
    places: LibraryFolders,
    name: str,
    header: dict[str, Any],
    replace: bool,
    differs: Callable[[Manifest], str],
    shard_rows: int,
    fence: Callable[[], None],
) -> Writer:
    """A writer of the document in folder `name`, which the caller holds exclusively.

    Args:
        places: of the library.
        name, header, replace, differs, shard_rows: as of `Library.writer`.
        fence: raises where the document has become another's to write.

    Raises:
        UsageError: it was begun from something else, and `replace` is false.
        StateMismatch: the checkpoint is damaged, and `replace` is false.
        LongctxError: the library cannot be written.
    """
    folder = places.unfinished(name)
    publish = partial(places.publish, name)
    begun = resumable(folder, replace, differs)
    try:
        writer = begun and Writer(folder, header, shard_rows, publish, begun, fence=fence)
    except StateMismatch:
        if not replace:
            raise
        writer = None
    if writer is None:
        places.empty(folder, name)
        writer = Writer(folder, header, shard_rows, publish, fence=fence)
    return writer


def begun_in(folder: Confined) -> Document | None:
    """What a stopped reading left of a document; None: nothing usable."""
    try:
        begun = Document(folder) if (folder / MANIFEST).exists() else None
    except StateMismatch:
        return None
    return begun if begun and begun.manifest.tokens else None


def resumable(
    folder: Confined, replace: bool, differs: Callable[[Manifest], str]
) -> Document | None:
    """The checkpoint in a folder, if a writer is to continue from it.

    Raises:
        UsageError: it is from something else, and `replace` is false.
        StateMismatch: it is damaged, and `replace` is false.
    """
    if not (folder / MANIFEST).exists():
        return None
    try:
        begun = Document(folder)
        why = begun.manifest.tokens and differs(begun.manifest)
    except StateMismatch:
        if replace:
            return None
        raise
    if why and not replace:
        manifest = begun.manifest
        raise UsageError(
            f"'{manifest.name}' was begun from something else ({manifest.tokens:,} tokens)",
            why,
            "Run the command that began it, or add --replace to begin anew",
        )
    return None if why or not begun.manifest.tokens else begun
