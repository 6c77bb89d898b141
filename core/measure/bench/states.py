"""A document of random tokens with its state, written without reading it."""

import torch
from torch import Tensor

from longctx.core.contracts.memory import Groups
from longctx.core.engine.setup import Engine
from longctx.core.ingest.resume import header
from longctx.core.kv.kept import GROUP as KV
from longctx.core.measure.bench.reading import RandomReading, full_cache, read_chunks
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library

NAME = "random"
BLOCK = 4096  # rows that are written at a time
PREFIX = 1  # tokens before the document, as most models have one


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
