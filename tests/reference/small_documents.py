"""Small documents for the tests of the store: how they are written, broken and looked at.

A token for every two bytes, and a row of embeddings for every token.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from xxhash import xxh3_128_hexdigest

from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.shards import BLOCK
from longctx.core.store.writer import Writer

MODEL = {"name": "tiny", "config": "c0", "tokenizer": "t0", "weights": "w0"}
HEADER = {
    "model": MODEL,
    "recorded": {"dtype": "float32"},
    "method": "reform",
    "options": {"chunk": 8},
    "profile": "tiny",
}
FIRST = b"one\ntwo\nthree\n\nfive"  # no final newline
SECOND = b"alpha\r\nbeta\r\n\xff\xfegamma\r\n" * 3
TOKENS = -(-len(FIRST) // 2) + -(-len(SECOND) // 2)
SNAPSHOT = {
    "keys": torch.arange(24).view(2, 3, 4).bfloat16(),
    "count": torch.tensor(7),
    "none": torch.empty(0, 5),
}
HOSTILE_NAMES = ["", ".", "..", ".x", "a/b", "../a", "a\\b", "a b", "a\n", "é", "x" * 101, "/a"]
HOSTILE_NAMES.append("a\0")


class Killed(BaseException):
    """Stands for the death of the process at some point."""


def embeddings(count: int, start: int = 0) -> dict[str, torch.Tensor]:
    """Rows [start, start + count) of the group "embeddings"."""
    rows = torch.arange(start, start + count)
    vectors = (rows[:, None, None] + torch.arange(6).view(1, 2, 3)) % 100
    return {"vectors": vectors.to(torch.int8), "scales": rows[:, None].expand(-1, 2).half()}


def add_source(writer: Writer, name: str, data: bytes, step: int = 7, **file) -> None:
    writer.begin_source(name, **file)
    for start in range(0, len(data), step):
        writer.add_bytes(data[start : start + step])
    starts = torch.arange(0, len(data), 2)
    writer.append("tokens", {"ids": starts.int() * 3, "starts": starts})
    end_source(writer, data)


def end_source(writer: Writer, data: bytes) -> None:
    writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", data.count(b"\xff"))


def write(
    library: Library,
    name: str = "book",
    checkpoints: tuple[int, ...] = (),
    shard_rows: int = 4,
    replace: bool = False,
) -> Manifest:
    """The document that most tests read; `checkpoints` are the rows after which one is made."""
    with library.writer(name, HEADER, replace, shard_rows=shard_rows) as writer:
        add_source(writer, "one.txt", FIRST, path=Path("in/one.txt"), mtime_ns=5)
        add_source(writer, "two.txt", SECOND, step=11)
        for row in range(TOKENS):
            writer.append("embeddings", embeddings(1, row))
            if row in checkpoints:
                writer.checkpoint({"tail": torch.tensor([row])}, report={"row": row})
        return writer.complete(SNAPSHOT, report={"forced_splits": 0})


@contextmanager
def stopped_writer(library: Library, **options) -> Iterator[Writer]:
    """A writer whose process dies at the end of the block, if not before."""
    with suppress(Killed), library.writer("book", HEADER, **options) as writer:
        yield writer
        raise Killed


def begin(library: Library, name: str = "book", data: bytes = b"begun") -> Path:
    """Leaves an unfinished document with a checkpoint, and returns its folder."""
    with library.writer(name, HEADER, shard_rows=4) as writer:
        add_source(writer, "one.txt", data)
        writer.checkpoint({})
    return library.path / "unfinished" / name


def word_table(passages: int = 1, first: int = 0, stem: str = "one") -> dict[str, np.ndarray]:
    """A table of the word index, as if each passage of a source had one word, once."""
    tokens = np.arange(passages, dtype=np.int64) * 64 + first
    return {
        "terms": np.frombuffer(bytearray(f"{stem}\n".encode()), np.uint8),
        "heads": np.array([0, passages], np.int32),
        "passages": np.arange(passages, dtype=np.int32),
        "counts": np.ones(passages, np.uint8),
        "lengths": np.ones(passages, np.int32),
        "sources": np.zeros(passages, np.int32),
        "tokens": tokens,
        "bytes": tokens * 2,
    }


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lock_files(library: Path) -> list[str]:
    """What there is of locks, but for the lasting one."""
    return sorted(path.name for path in (library / "locks").rglob("*.*"))


def flip(path: Path, position: int) -> None:
    """Turns over the lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def forge(folder: Path | Confined, change: Callable[[dict], object]) -> None:
    """Change the manifest's data and give it a checksum that fits."""
    folder = Confined.of(folder).path
    data = json.loads((folder / "manifest.json").read_text())
    del data["checksum"]
    change(data)
    text = json.dumps(data, sort_keys=True, indent=1) + "\n"
    data["checksum"] = xxh3_128_hexdigest(text.encode())
    (folder / "manifest.json").write_text(json.dumps(data))


def in_shard(group: str, /, **changes) -> Callable[[dict], None]:
    """A change, for `forge`, of what the manifest says of the first file of a group."""

    def change(data: dict) -> None:
        next(shard for shard in data["shards"] if shard["group"] == group).update(changes)

    return change


def counting(more: int) -> Callable[[dict], None]:
    """A change, for `forge`, of the tokens that the manifest counts, as if there were more."""

    def change(data: dict) -> None:
        data["tokens"] += more
        data["sources"][-1]["tokens"] += more
        [*_, last] = (shard for shard in data["shards"] if shard["group"] == "tokens")
        last["rows"] += more

    return change


def put(folder: Path, file: str, data: bytes) -> None:
    """Put other bytes in the place of a file, with size and checksums that fit."""
    (folder / file).write_bytes(data)
    pieces = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
    blocks = [xxh3_128_hexdigest(piece) for piece in pieces]
    changes = {"size": len(data), "blocks": blocks}
    if file.endswith(".gz"):
        changes["members"] = [len(data)]
    forge(folder, in_shard(file.split("-")[0], **changes))
