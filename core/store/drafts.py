"""Drafts: what is stored of a document before the model encodes it.

A draft has a document's whole text, its tokens and the words of its passages, and then their
vectors, in `drafts/<name>`. It is searched, and answered from by the reader, until the document
takes its place. Whoever writes one holds `unfinished/<name>` exclusively.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from longctx.core.common import pasting
from longctx.core.common.errors import Locked, LongctxError, NotFound
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.durable import storing
from longctx.core.store.manifest import Manifest, in_order
from longctx.core.store.naming import called_after
from longctx.core.store.places import DRAFTS, LibraryFolders, write_manifest
from longctx.core.store.shard_writer import SHARD_ROWS
from longctx.core.store.shards import FOR_WORDS, VECTORS
from longctx.core.store.word_files import MakeTables, each_table, files_in
from longctx.core.store.writer import Writer

_WORDS_DO = "Until then `ask` and `find` use its words, without options that need the encoding."


@dataclass(frozen=True)
class Encoded:
    """How far the encoding of a document is.

    Attributes:
        tokens: of the document.
        done: those that the last checkpoint holds.
        running: a process works on it.
        vectors: its passages have vectors.
        command: what goes on with it.
    """

    tokens: int
    done: int
    running: bool
    vectors: bool
    command: str

    @property
    def share(self) -> str:
        """The share that is done, rounded down."""
        return f"{100 * self.done // max(self.tokens, 1)}%"

    @property
    def usable(self) -> str:
        """What can be used until the encoding is done, and how far that is."""
        what = "words and vectors" if self.vectors else "words"
        if self.running:
            return f"{what} only, encoding is at {self.share}"
        return f"{what} only, encoding was interrupted at {self.share}; {self.command} goes on"

    def as_dict(self, name: str) -> dict[str, Any]:
        """The item of a document in the JSON list `words_only`."""
        told = {"name": name, "tokens": self.tokens, "encoded": self.done}
        return {**told, "running": self.running, "vectors": self.vectors}


def encoded(draft: Manifest, begun: Manifest, running: bool) -> Encoded:
    """How far the encoding of a draft's document is.

    Args:
        draft: its manifest.
        begun: that of the last checkpoint; of none, one without tokens.
        running: a process works on it.
    """
    counts = draft.tokens, min(begun.tokens, draft.tokens)
    return Encoded(*counts, running, has_all_vectors(draft), _command(draft))


def has_all_vectors(draft: Manifest) -> bool:
    """Whether all passages of a draft have vectors."""
    return len(files_in(draft, VECTORS)) == len(files_in(draft))


def not_encoded(name: str, how: Encoded, held: Locked | None) -> LongctxError:
    """The error for what needs the encoding of a document that is not done.

    Args:
        name: the document's.
        how: how far it is.
        held: the error that names the process which works on it; None: none does.
    """
    what = f"the encoding of '{name}' is not done"
    at = f"{how.done:,} of its {how.tokens:,} tokens ({how.share}) are saved"
    if held:
        return Locked(what, f"{at}; {held.what}", f"Wait until it is done. {_WORDS_DO}")
    return NotFound(what, f"it was interrupted; {at}", f"{how.command} goes on. {_WORDS_DO}")


def _command(draft: Manifest) -> str:
    """The command that goes on with an interrupted encoding, as far as it is known."""
    paths = {source.path for source in draft.sources}
    path = paths.pop() if len(paths) == 1 else None
    if path is None or any(source.origin and source.origin.part for source in draft.sources):
        return "the same `longctx ingest` command"
    if called_after(path) == draft.name:
        return f"`longctx ingest {pasting.file(path)}`"
    return f"`longctx ingest {pasting.file(path)} {pasting.option('--name', draft.name)}`"


@contextmanager
def drafting(
    places: LibraryFolders, name: str, header: dict[str, Any], fence: Callable[[], None]
) -> Iterator[Writer]:
    """Write a draft; without `Writer.draft`, none is left.

    Args:
        places: of the library.
        name: the folder's.
        header: as of `Library.writer`.
        fence: raises where the document has become another's to write.

    Raises:
        Locked: an earlier draft is being read.
        LongctxError: the library cannot be written.
    """
    folder = places.draft(name)
    with storing(folder):
        folder.parent.mkdir(exist_ok=True)
    with places.alone(name, DRAFTS):
        places.empty(folder, name)
        try:
            yield Writer(folder, header, SHARD_ROWS, lambda: None, fence=fence)
        finally:
            if not places.has_draft(name):
                with storing(folder):
                    places.delete(folder, name)


def add_vectors(folder: Confined, make: MakeTables, fence: Callable[[], None]) -> None:
    """Adds the vectors that the passages of a draft lack, while others may read it.

    Each file counts as soon as it is written, so a stopped process has made it for good.

    Raises:
        StateMismatch: it is damaged.
        LongctxError: they cannot be made or written.
    """
    document = Document(folder, needed=FOR_WORDS)
    manifest = document.manifest
    for shard in each_table(document, folder, VECTORS, make, len(files_in(manifest, VECTORS))):
        fence()
        manifest = replace(manifest, shards=in_order([*manifest.shards, shard.result()]))
        write_manifest(folder, manifest)
