"""The word index as files: which ones are written, and which ones a longer document keeps.

The caller passes in a callable that gives the tables of each file. `docs/format.md` specifies both.
A file holds the units (64 tokens of one source) that begin in one run of the document's tokens, so
what is appended leaves the earlier files as they are. This module counts no words.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
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

UNIT = 64  # tokens of one source
FILE_TOKENS = 1 << 16  # a file has the units that begin in a run of this many tokens
_LOOK = 256  # tokens in which to look for the end of a word

# Maps a document and a file number to the tables of that file and of all after it.
MakeWords = Callable[[Document, int], "Iterator[dict[str, numpy.ndarray]]"]


def write_words(
    document: Document,
    folder: Confined,
    make: MakeWords,
    kept: list[Shard] | None = None,
    start: "Callable[..., Future[Shard]] | None" = None,
) -> list[Shard]:
    """Writes the word index of a document.

    Args:
        document: its text and tokens are read.
        folder: where to write.
        make: gives the tables of the files.
        kept: the first files, which are already in the folder.
        start: starts calls in other threads; None: they are made at once.

    Returns:
        All files of the index.

    Raises:
        StateMismatch: the document is damaged.
        LongctxError: a file cannot be written.
    """
    import torch

    first, written = [*(kept or ())], []
    for number, tables in enumerate(make(document, len(first)), len(first)):
        tensors = {name: torch.from_numpy(table) for name, table in tables.items()}
        name = shard_name(WORDS, number, None)
        written.append((start or done)(write_tensors, folder, WORDS, name, tensors))
    return [*first, *(each.result() for each in written)]


def words_of(manifest: Manifest) -> list[Shard]:
    """The files of a document's word index."""
    return [shard for shard in manifest.shards if shard.group == WORDS]


def damaged_words(
    document: Document, on_bytes: Callable[[int], None] = lambda count: None
) -> dict[str, str]:
    """What is wrong with files of a document's word index, by file name; each file is read.

    Args:
        document: an open document.
        on_bytes: gets the number of bytes after each piece.
    """
    found = {}
    for shard in words_of(document.manifest):
        try:
            for block in document.blocks(shard):
                on_bytes(len(block))
        except StateMismatch as error:
            found[shard.file] = error.why or error.what
    return found


def unchanged_words(document: Document, tokens: int) -> list[Shard]:
    """The first files of a word index that stay as they are when the document is made longer.

    Args:
        document: a complete one.
        tokens: number of tokens that stay the same, as does their text.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    found: list[Shard] = []
    damaged = damaged_words(document)
    for shard in words_of(document.manifest):
        end = (len(found) + 1) * FILE_TOKENS
        if shard.file in damaged or end + UNIT > tokens or not _is_over(document, end, tokens):
            break
        found.append(shard)
    return found


def _is_over(document: Document, end: int, tokens: int) -> bool:
    """Whether the last word of the units that begin before token `end` is sure to end there.

    A word cut by a unit's end counts wholly for that unit, so what follows is looked at.
    """
    source = document.manifest.sources[document.source_of(end - 1)]
    units = -(-(end - source.first_token) // UNIT)
    first, stop = source.first_token + units * UNIT, source.first_token + source.tokens
    if first >= stop:
        return True
    last = min(first + _LOOK, tokens, stop)
    text, encoding = document.text(*document.span(first, last)), source.encoding or "utf-8"
    return any(character.isspace() for character in text.decode(encoding, errors="replace"))
