"""The word index as files: which ones are written, and which ones a longer document keeps.

The caller passes in a callable that gives the tables of each file. `docs/format.md` specifies both.
A file holds the passages of one run of the document's tokens, so what is appended leaves the
earlier files as they are. This module cuts no passages and counts no words.
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

FILE_TOKENS = 1 << 16  # tokens of a run
SHIFT = 256  # tokens by which a file's passages may begin or end after its run's
_LOOK = 256  # further tokens that decide where its last passage and that one's last word end

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
    kept: list[Shard] = []
    damaged = damaged_words(document)
    for shard in words_of(document.manifest):
        end = (len(kept) + 1) * FILE_TOKENS + SHIFT
        if shard.file in damaged or not _is_over(document, end, tokens):
            break
        kept.append(shard)
    return kept


def _is_over(document: Document, end: int, tokens: int) -> bool:
    """Whether passages up to a token, and the last word of them, are sure to end where they do.

    A word cut by a passage's end counts wholly for that passage, so what follows is looked at.
    """
    if end + _LOOK > tokens:
        return False
    source = document.manifest.sources[document.source_of(end)]
    first, last = end, min(end + _LOOK, source.first_token + source.tokens)
    text = document.text(*document.span(first, last)).decode(source.codec, errors="replace")
    return any(character.isspace() for character in text) or last < end + _LOOK
