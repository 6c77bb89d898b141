"""Disk and memory: the size of a token, and whether a document will fit.

Estimates before a run; the store handles writes to a full disk.
"""

from longctx.core.common.device import free_memory
from longctx.core.common.errors import LongctxError
from longctx.core.common.units import show_bytes
from longctx.core.contracts.memory import Held
from longctx.core.contracts.method import Method
from longctx.core.engine.setup import Engine
from longctx.core.sources.reader import Source
from longctx.core.store.library import Library
from longctx.core.store.shard_writer import compress_member
from longctx.core.store.space import MORE_DISK, folder_bytes, free_disk, left_of

TOKEN_BYTES = 12  # an int32 id and an int64 offset, until they are stored
WORD_BYTES = 4  # of the word index per token, estimated
DRAFT_BYTES = 8  # of a draft's text and tokens per token, estimated; the rest is linked from it
VECTOR_BYTES = 388 / 128  # of vectors per token, estimated: 384 numbers and a scale for a passage
SAMPLE_BYTES = 1 << 18


def expected_in_room(
    store: Library,
    name: str,
    engine: Engine,
    sources: list[Source],
    max_size: int | None,
    before: int = 0,
    vectors: bool = False,
    draft: bool = False,
) -> int:
    """The tokens that a document will have, estimated from its first text, if there is room.

    Args:
        store: where the state will be.
        name: the document's; its existing files do not count twice.
        engine: the reader.
        sources: what is read; a stream counts as nothing.
        max_size: the most bytes the library may have; None: any number.
        before: tokens that exist already.
        vectors: its passages get vectors.
        draft: it gets a draft, which is there until it is complete.

    Raises:
        LongctxError: the model does not fit, the state does not fit on disk, or what is held does
            not fit in memory; with the sizes needed and free.
    """
    method = engine.new_method()
    row = method.row_bytes() + WORD_BYTES + (VECTOR_BYTES if vectors else 0)
    row += DRAFT_BYTES if draft else 0
    tokens, needed = _tokens_and_bytes(engine, sources, row)
    # While a checkpoint is written, the previous one still exists.
    needed += 2 * method.snapshot_bytes(tokens, engine.dtype.itemsize)
    begun = sum(folder_bytes(store.path / place / name) for place in ("unfinished", "drafts"))
    room = begun + free_disk(store.path)
    _refuse(store, sources, needed, room, "are free", MORE_DISK)
    if max_size is not None:
        _refuse(store, sources, needed, *left_of(max_size, folder_bytes(store.path), begun))
    _require_memory(engine, method, before + tokens)
    return before + tokens


def _require_memory(engine: Engine, method: Method, tokens: int) -> None:
    """Refuses tokens for which a method would hold more than fits in memory."""
    held = method.held_bytes(tokens)
    if not holds(engine, held):
        beside = held.host or held.device
        raise LongctxError(
            "no room in memory",
            f"keys and values of about {tokens:,} tokens need {show_bytes(beside)} of it, "
            f"{show_bytes(free_memory('cpu') or 0)} are free",
            "Keep them in half the bytes (--kv-dtype int8), or use --method reform.",
        )


def holds(engine: Engine, held: Held) -> bool:
    """Whether there is room for what a method will hold; True where free memory is unknown."""
    host = held.host + (held.device if engine.device == "cpu" else 0)
    free = free_memory("cpu")
    return free is None or host <= free


def _refuse(
    store: Library, sources: list[Source], needed: int, room: int, where: str, remedy: str
) -> None:
    if needed > room:
        size = sum(source.expected_size or 0 for source in sources)
        raise LongctxError(
            f"no room in the library '{store.path}'",
            f"the state of {show_bytes(size)} of text needs about {show_bytes(needed)}, "
            f"{show_bytes(max(room, 0))} {where}",
            remedy,
        )


def stored_token_bytes(last_id: int, largest: int) -> int:
    """Bytes that are stored of a token: its id and its place, each as wide as it must be.

    Args:
        last_id: the largest id that occurs.
        largest: bytes of the largest source.
    """
    return (2 if last_id < 1 << 15 else 4) + (4 if largest < 1 << 31 else 8)


def _tokens_and_bytes(engine: Engine, sources: list[Source], row: float) -> tuple[int, int]:
    """Estimated tokens of files, and their bytes, from the first text of the first file.

    Args:
        engine, sources: the reader, and what it reads.
        row: bytes of a token besides its id, place and text.
    """
    sized = (source for source in sources if source.path is not None and source.expected_size)
    data = next((data for source in sized if (data := source.first_bytes(SAMPLE_BYTES))), b"")
    if not data:
        return 0, 0
    backend = engine.files.tokenizer.backend_tokenizer
    tokens = len(backend.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids)
    each = tokens / len(data) * (TOKEN_BYTES + row)
    each += len(compress_member(data)) / len(data)
    size = sum(source.expected_size or 0 for source in sources)
    return int(size * tokens / len(data)), int(size * each)
