"""Random tokens to read, which need no tokenizer, a state of them, and a writer of nothing."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.device import empty_cache
from longctx.core.contracts.memory import Groups
from longctx.core.contracts.method import Growing, Method
from longctx.core.engine.setup import Engine
from longctx.core.ingest.ahead import Unit
from longctx.core.ingest.reading import SourceReading
from longctx.core.ingest.resume import header
from longctx.core.kv.kept import GROUP as KV
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library
from longctx.core.store.manifest import UNITS
from longctx.core.store.writer import Writer

NAME = "random"  # of a document
PREFIX = 1  # tokens before the document, as most models have one
PIECE = 1 << 16  # tokens
BLOCK = 4096  # rows that are written at a time
TOKEN_BYTES = 4  # of text


def random_ids(tokens: int, vocabulary: int, seed: int = 0) -> Tensor:
    """(tokens,) int64 token ids, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (tokens,), generator=generator)


def read_chunks(engine: Engine, method: Method, chunks: int, prefix: int = 0) -> Groups:
    """Reads whole chunks of random tokens; the rows of the last one.

    Args:
        engine: the model.
        method: fresh, or as it was left.
        chunks: how many.
        prefix: tokens of the first of them that are not the document's.
    """
    rows: Groups = {}
    for number in range(chunks):
        ids = random_ids(method.chunk, engine.files.config.vocab_size)
        engine.reader.read(ids, method, method.depth)
        rows = method.rows(skip=0 if number else prefix)
    return rows


def full_cache(engine: Engine) -> int:
    """Chunks after which a method that evicts has a full cache; 1 for others."""
    options = engine.options.reading
    return 1 + -(-(options.budget or 0) // options.chunk)


def filled(engine: Engine, tokens: int, room: int) -> Method:
    """A memory as if so many tokens had been read, with room for more.

    Args:
        engine: the model, with a method whose memory grows.
        tokens: that it holds, with random contents.
        room: tokens that will be read.
    """
    empty_cache(engine.device)
    method = engine.new_method(reading=True, tokens=tokens + room)
    assert isinstance(method, Growing)
    method.fill(tokens)
    return method


def warm_up(engine: Engine, tokens: int) -> None:
    """Reads over a full memory: a GPU's kernels are chosen and compiled when first used.

    Args:
        engine: the model.
        tokens: as if so many had been read.
    """
    if engine.device == "cpu":
        return
    empty_cache(engine.device)
    held = tokens + 2 * engine.options.reading.chunk
    method = engine.new_method(reading=True, tokens=held)
    read_chunks(engine, method, full_cache(engine))
    if isinstance(method, Growing):
        method.fill(tokens)
    read_chunks(engine, method, 2)
    method.snapshot()


class RandomReading(SourceReading):
    """Reads random tokens, each with four bytes of text.

    Args:
        tokens: of the document.
        vocabulary: ids to draw from.
        writer: gets text and tokens, as the model has read them.
    """

    def __init__(self, tokens: int, vocabulary: int, writer: WriterBehind):
        self._ids = random_ids(tokens, vocabulary).to(torch.int32)
        self._writer = writer
        self._digest = hashlib.sha256()
        self.tokens = self.bytes = self.forced_splits = 0
        self.total = None
        self.safe = tokens  # as of a text of many lines
        self.skipped: list[dict[str, Any]] = []
        self.changed: list[str] = []

    @contextmanager
    def pieces(self) -> Iterator[Iterator[tuple[Unit, Tensor]]]:
        """The token ids in pieces (n,) int64 of one source, in a context."""
        unit = Unit()
        yield ((unit, piece.long()) for piece in self._ids.split(PIECE))

    def store(self, tokens: int = sys.maxsize) -> None:
        """Hands on the first `tokens` of the document, and their text."""
        if not self.tokens:
            self._writer.begin_source("random", None, None, "utf-8")
        ids = self._ids[self.tokens : tokens]
        if not len(ids):
            return
        starts = torch.arange(self.tokens, self.tokens + len(ids)) * TOKEN_BYTES
        text = text_of(ids)
        self._digest.update(text)
        self._writer.append("tokens", {"ids": ids, "starts": starts})
        self._writer.add_bytes(text)
        self.tokens, self.bytes = self.tokens + len(ids), self.bytes + len(text)
        if self.tokens == len(self._ids):
            self._writer.end_source(self.bytes, self._digest.hexdigest(), "utf-8", 0)

    def report(self) -> dict[str, Any]:
        """Nothing is told of it."""
        return {}


def text_of(ids: Tensor) -> bytes:
    """Three letters and a space for each of the ids (n,)."""
    letters = [97 + (ids >> shift & 15) for shift in (0, 4, 8)]
    return (
        torch.stack([*letters, torch.full_like(ids, 32)], dim=1).to(torch.uint8).numpy().tobytes()
    )


class Nowhere(Writer):
    """Keeps nothing of what it is given."""

    def __init__(self):
        self.begun = self.drafted = None

    @property
    def units(self) -> str:
        """Everything is one text."""
        return UNITS[0]

    @property
    def encoder(self) -> str:
        """Passages get no vectors."""
        return ""

    def ignore(self, *args: Any, **named: Any) -> Any:
        """Takes anything."""

    work_beside = begin_source = add_bytes = end_source = append = checkpoint = complete = ignore

    def growth(self, *args: Any, **named: Any) -> int:
        """No bytes."""
        return 0


def make_state(library: Library, engine: Engine, tokens: int) -> None:
    """Writes a document as if it had been read.

    Keys and values are random, so that those which a question selects lie all over the document;
    other rows are drawn from those of one chunk.
    """
    method = engine.new_method()
    like = read_chunks(engine, method, full_cache(engine), PREFIX)
    snapshot = {**method.snapshot(), "seen": torch.tensor(PREFIX + tokens)}
    with library.writer(NAME, header(engine)) as writer:
        behind = WriterBehind(writer, engine.device)
        reading = RandomReading(tokens, engine.files.config.vocab_size, behind)
        with behind:
            for start in range(0, tokens, BLOCK):
                count = min(BLOCK, tokens - start)
                for group, rows in _drawn(like, count).items():
                    behind.append(group, rows)
                reading.store(start + count)
        writer.complete(snapshot, words=word_tables, report=reading.report())


def _drawn(like: Groups, count: int) -> Groups:
    """So many rows of each group, on the device of the given ones."""
    return {
        group: {name: (_random if group == KV else _repeated)(x, count) for name, x in rows.items()}
        for group, rows in like.items()
    }


def _random(like: Tensor, count: int) -> Tensor:
    x = like.new_empty(count, *like.shape[1:])
    return x.normal_() if x.is_floating_point() else x.random_(-127, 128)


def _repeated(like: Tensor, count: int) -> Tensor:
    return like[torch.randint(len(like), (count,), device=like.device)]
