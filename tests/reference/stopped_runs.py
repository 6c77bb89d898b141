"""A document that is written step by step, in runs that die after any of them.

At every step the document is whole: tokens, a row for each, and the text up to the next token.
"""

from contextlib import suppress

import torch
from small_documents import FIRST, HEADER, SNAPSHOT, Killed, embeddings, end_source, files_of

from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.writer import Writer

SOURCES = [FIRST + b"\n", b"", b"alpha\r\nbeta\r\n\xff\xfegamma\r\n", b"end"]
STEPS = [
    (kind, source, start)
    for source, data in enumerate(SOURCES)
    for kind, starts in (("begin", [0]), ("token", range(0, len(data), 2)), ("end", [0]))
    for start in starts
]
END = len(STEPS)
FULL = STEPS.index(("token", 2, 2)) + 1  # 12 tokens and 24 bytes: all files are just full


def feed(writer: Writer, first: int, last: int) -> None:
    """Steps [first, last): every token with its text, up to where the next one starts."""
    for step in range(first, last):
        kind, source, start = STEPS[step]
        data = SOURCES[source]
        if kind == "begin":
            encoding = "utf-8" if source else None  # it may be known, or not yet
            writer.begin_source(f"{source}.txt", f"in/{source}.txt", source, encoding)
        elif kind == "end":
            end_source(writer, data)
        else:
            ids = torch.tensor([start * 3]).int()
            writer.append("tokens", {"ids": ids, "starts": torch.tensor([start])})
            writer.add_bytes(data[start : start + 2])
            writer.append("embeddings", embeddings(1, step))


def done(manifest: Manifest) -> int:
    """How many steps a checkpoint has; a source of which nothing came is begun again."""
    return sum(s.tokens + (1 if s.undecodable is None else 2) for s in manifest.sources)


def run(library: Library, checkpoints=(), die=END, shard_rows=4) -> int:
    """Goes on with "book", makes checkpoints after these steps, and dies after step `die`.

    Returns:
        The step that it went on from.
    """
    started = 0
    with suppress(Killed), library.writer("book", HEADER, shard_rows=shard_rows) as writer:
        started = step = done(writer.begun.manifest) if writer.begun else 0
        for checkpoint in checkpoints:
            feed(writer, step, checkpoint)
            writer.checkpoint({"step": torch.tensor(checkpoint)}, report={"step": checkpoint})
            step = checkpoint
        feed(writer, step, die)
        raise Killed
    return started


def finish(library: Library, name="book", shard_rows=4) -> dict[str, bytes]:
    """Goes on to the end, and returns the files of the document."""
    with library.writer(name, HEADER, shard_rows=shard_rows) as writer:
        feed(writer, done(writer.begun.manifest) if writer.begun else 0, END)
        writer.complete(SNAPSHOT, report={"forced_splits": 0})
    library.document(name).verify()
    return files_of(library.path / "documents" / name)
