"""Upgrades documents of an older format: their word index and their titles.

No source is read again and no model is needed. Documents are upgraded one by one; a kill leaves
each either as it was or upgraded. The caller passes in the callable that makes the index tables.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from longctx.core.common.errors import Locked, StateMismatch
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import FORMAT, Manifest, in_order
from longctx.core.store.places import age, sweep, write_manifest
from longctx.core.store.shards import WORDS
from longctx.core.store.word_files import MakeWords, damaged_words, write_words


@dataclass(frozen=True)
class Upgraded:
    """The outcome for one document.

    Attributes:
        name, title: the document's name, under two keys.
        status: upgraded; current, if there was nothing to do; damaged or locked, if it stays as it
            was.
        format: the format it had; None if unknown.
        bytes: size of its state now.
        error: what is wrong.
    """

    name: str
    title: str
    status: str
    format: int | None = None
    bytes: int = 0
    error: str | None = None


def upgrade(library: Library, make: MakeWords, names: Sequence[str] = ()) -> Iterator[Upgraded]:
    """Brings documents to the current format, and then the library's own record.

    Args:
        library: where they are.
        make: gives the tables of the word index.
        names: their names; none: all complete documents.

    Raises:
        UsageError, NotFound: there is no such document, or it is not finished.
        LongctxError: the library cannot be written. Each document is as it was, or upgraded.
    """
    wanted = [library.folder_named(name) for name in names] or library.names()
    for name in wanted if names else ():
        _require_there(library, name)
    known = {facts.folder: facts.name for facts in reversed(library.facts())}
    for name in dict.fromkeys(wanted):
        called = known.get(name, name)
        try:
            yield _upgrade(library, name, make)
        except Locked as error:
            yield Upgraded(called, called, "locked", error=str(error))
        except StateMismatch as error:
            yield Upgraded(called, called, "damaged", error=str(error))
    library.mark()


def _require_there(library: Library, name: str) -> None:
    with suppress(Locked, StateMismatch):  # reported in its turn
        library.document(name)


def _upgrade(library: Library, name: str, make: MakeWords) -> Upgraded:
    with library.reading(name) as document:
        if _is_current(document):
            return _told(document.manifest, "current", FORMAT)
    with library.changing(name) as folder:
        document = Document(folder)
        before = document.manifest
        files = [shard for shard in before.shards if shard.group != WORDS]
        files += write_words(document, folder, make)
        manifest = replace(before, format=FORMAT, shards=in_order(files))
        write_manifest(folder, manifest, age(folder))
        sweep(folder, manifest)
    return _told(manifest, "upgraded", before.format)


def _is_current(document: Document) -> bool:
    """Whether it has the current format and a sound word index."""
    manifest = document.manifest
    whole = manifest.format == FORMAT and manifest.has_words
    return whole and not damaged_words(document)


def _told(manifest: Manifest, status: str, found: int) -> Upgraded:
    return Upgraded(manifest.name, manifest.name, status, found, manifest.size)
