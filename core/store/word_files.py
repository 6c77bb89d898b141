"""Word index and vectors of passages as files: which are written, and which are kept on growth.

The caller passes in a callable that gives the tables of each file. `docs/format.md` specifies them.
A file holds the passages of one run of the document's tokens, so what is appended leaves the
earlier files as they are. This module cuts no passages, counts no words and computes no vectors.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import takewhile
from typing import TYPE_CHECKING

from longctx.core.common.background import done
from longctx.core.common.errors import StateMismatch
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest
from longctx.core.store.shard_writer import write_tensors
from longctx.core.store.shards import WORDS, Shard, shard_name

if TYPE_CHECKING:
    import numpy

FILE_TOKENS = 1 << 16  # tokens of a run
SHIFT = 256  # tokens by which a file's passages may begin or end after its run's
_LOOK = 256  # further tokens that decide where its last passage and that one's last word end

# Maps a document and a file number to the tables of that file and of all after it.
MakeTables = Callable[[Document, int], "Iterator[dict[str, numpy.ndarray]]"]


def write_tables(
    document: Document,
    folder: Confined,
    group: str,
    make: MakeTables,
    kept: list[Shard] | None = None,
    start: "Callable[..., Future[Shard]] | None" = None,
) -> list[Shard]:
    """Writes the files of a group of `shards.OF_PASSAGES`.

    Args:
        document: its text and tokens are read.
        folder: where to write.
        group: the group.
        make: gives the tables of the files.
        kept: the first files, which are already in the folder.
        start: starts calls in other threads; None: they are made at once.

    Returns:
        All files of the group.

    Raises:
        StateMismatch: the document is damaged.
        LongctxError: a file cannot be written.
    """
    first = [*(kept or ())]
    written = [*each_table(document, folder, group, make, len(first), start)]
    return [*first, *(each.result() for each in written)]


def each_table(
    document: Document,
    folder: Confined,
    group: str,
    make: MakeTables,
    first: int,
    start: "Callable[..., Future[Shard]] | None" = None,
) -> "Iterator[Future[Shard]]":
    """As `write_tables`, file by file from number `first` on."""
    import torch

    for number, tables in enumerate(make(document, first), first):
        tensors = {name: torch.from_numpy(table) for name, table in tables.items()}
        name = shard_name(group, number, None)
        yield (start or done)(write_tensors, folder, group, name, tensors)


def files_in(manifest: Manifest, group: str = WORDS) -> list[Shard]:
    """The files of a group that a manifest names."""
    return [shard for shard in manifest.shards if shard.group == group]


def damaged_tables(
    document: Document, group: str = WORDS, on_bytes: Callable[[int], None] = lambda count: None
) -> dict[str, str]:
    """What is wrong with files of a group, by file name; each file is read.

    Args:
        document: an open document.
        group: one of `shards.OF_PASSAGES`.
        on_bytes: gets the number of bytes after each piece.
    """
    found = {}
    for shard in files_in(document.manifest, group):
        try:
            for block in document.blocks(shard):
                on_bytes(len(block))
        except StateMismatch as error:
            found[shard.file] = error.why or error.what
    return found


def sound_tables(document: Document, group: str = WORDS) -> list[Shard]:
    """The files of a group before the first damaged one."""
    damaged = damaged_tables(document, group)
    return [*takewhile(lambda shard: shard.file not in damaged, files_in(document.manifest, group))]


def unchanged_tables(document: Document, tokens: int, group: str = WORDS) -> list[Shard]:
    """The first files of a group that stay as they are when the document is made longer.

    Args:
        document: a complete one.
        tokens: number of tokens that stay the same, as does their text.
        group: one of `shards.OF_PASSAGES`.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    kept: list[Shard] = []
    for shard in sound_tables(document, group):
        if not is_settled(document, len(kept), tokens):
            break
        kept.append(shard)
    return kept


def is_settled(document: Document, number: int, tokens: int) -> bool:
    """Whether a file's passages, and the last word of them, are sure to end where they do.

    A word cut by a passage's end counts wholly for that passage, so what follows is looked at.

    Args:
        document: an open document.
        number: the file's.
        tokens: number of tokens that stay the same, as does their text.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    end = (number + 1) * FILE_TOKENS + SHIFT
    if end + _LOOK > tokens:
        return False
    source = document.manifest.sources[document.source_of(end)]
    first, last = end, min(end + _LOOK, source.first_token + source.tokens)
    text = document.text(*document.span(first, last)).decode(source.codec, errors="replace")
    return any(character.isspace() for character in text) or last < end + _LOOK
