"""Damage, by accident or on purpose: every file is checked before anything of it is used."""

import json
import os

import pytest
import torch
from small_documents import (
    FIRST,
    HEADER,
    SECOND,
    TOKENS,
    flip,
    put,
    write,
)

from longctx.core.common.errors import StateMismatch
from longctx.core.store import shard_writer, shards
from longctx.core.store.document import Document

pytestmark = pytest.mark.usefixtures("no_sync")

LINES = (FIRST + SECOND).count(b"\n")
GROUPS = ["text-00000.gz", "lines-00000", "tokens-00000", "embeddings-00003", "memory-00000"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("file", GROUPS)
@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.999])
def test_a_flipped_byte_is_found_when_it_is_read(library, file, place):
    write(library)
    [path] = (library.path / "documents" / "book").glob(f"{file}*")
    flip(path, int(place * path.stat().st_size))
    with pytest.raises(StateMismatch, match=f"{file}.*--replace"):
        library.document("book").verify()
    with pytest.raises(StateMismatch, match=file):
        read_all(library.document("book"))


def test_verify_finds_bits_that_rot_after_they_were_read(library):
    write(library)
    document = library.document("book")
    read_all(document)
    path = library.path / "documents" / "book" / "tokens-00000.safetensors"
    time = path.stat().st_mtime_ns
    flip(path, -1)
    os.utime(path, ns=(time, time))
    with pytest.raises(StateMismatch, match=r"tokens-00000.*checksum"):
        document.verify()


def read_all(document: Document) -> None:
    for index, source in enumerate(document.manifest.sources):
        document.text(index, 0, source.size)
        document.line(index, source.size)
    document.take("tokens", torch.arange(TOKENS))
    list(document.rows("embeddings"))
    document.snapshot()


@pytest.mark.parametrize("file", GROUPS)
def test_a_shard_cut_or_missing_is_found_at_open(library, file):
    write(library)
    [path] = (library.path / "documents" / "book").glob(f"{file}*")
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(StateMismatch, match=rf"{file}.*bytes"):
        library.document("book")
    path.unlink()
    with pytest.raises(StateMismatch, match=f"cannot read.*{file}"):
        library.document("book")


def test_only_blocks_that_are_touched_are_read(library, monkeypatch):
    monkeypatch.setattr(shards, "BLOCK", 64)
    with library.writer("book", HEADER, shard_rows=100) as writer:
        writer.append("kv", {"keys": torch.rand(150, 4, 4)})
        writer.complete({})
    flip(library.path / "documents" / "book" / "kv-00001.safetensors", -1)
    document = library.document("book")
    assert document.checked_bytes == 0
    document.take("kv", torch.tensor([3]))
    assert 0 < document.checked_bytes <= 4 * 64  # the header and the row
    scanned = document.rows("kv")
    next(scanned)
    assert document.checked_bytes == document.manifest.shards[0].size  # nothing of the next
    document.take("kv", torch.tensor([100]))
    with pytest.raises(StateMismatch, match="kv-00001"):
        next(scanned)


def safetensors_file(header: object, data: bytes = b"\0" * 16) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="I32", shape=(4,), offsets=(0, 16)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE_HEADERS = {
    "nothing": b"",
    "too-short": b"1234567",
    "endless": (1 << 62).to_bytes(8, "little"),
    "no-json": safetensors_file(b"{"),
    "a-list": safetensors_file([]),
    "no-entry": safetensors_file({"ids": 3}),
    "too-few-bytes": safetensors_file({"ids": entry(offsets=(0, 15))}),
    "before-the-data": safetensors_file({"ids": entry(offsets=(-16, 0))}),
    "behind-the-file": safetensors_file({"ids": entry(offsets=(8, 24))}),
    "other-rows": safetensors_file({"ids": entry(shape=(5,), offsets=(0, 20))}),
    "fractions": safetensors_file({"ids": entry(shape=(4.0,))}),
    "negative": safetensors_file({"ids": entry(shape=(4, -1), offsets=(0, -16))}),
    "unknown-type": safetensors_file({"ids": entry(dtype="PICKLE")}),
    "one-over-the-other": safetensors_file({"a": entry(), "b": entry()}),
    "half-over-the-other": safetensors_file({"a": entry(), "b": entry(offsets=(8, 24))}, bytes(24)),
    "a-gap": safetensors_file({"a": entry(), "b": entry(offsets=(20, 36))}, bytes(36)),
    "a-gap-before": safetensors_file({"a": entry(offsets=(4, 20))}, bytes(20)),
    "more-behind": safetensors_file({"a": entry()}, bytes(17)),
    "a-long-header": safetensors_file(json.dumps({"a": entry()}).encode().ljust((1 << 20) + 1)),
    "empty-and-huge": safetensors_file(
        {"a": entry(), "b": entry(shape=(4, 10**30, 0), offsets=(16, 16))}
    ),
    "many-dimensions": safetensors_file({"a": entry(shape=(4, *[1] * 100))}),
    "a-text-as-long-as-the-memory": safetensors_file({"a": entry(shape=("a", 10**13))}),
    "metadata": safetensors_file({"__metadata__": {"a": "b"}}),
}


@pytest.mark.parametrize("data", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS)
def test_a_hostile_tensor_header_is_refused_at_open(library, data):
    """In a group of one file, whose tensors may have any name."""
    with library.writer("book", HEADER) as writer:
        writer.append("kv", {"keys": torch.zeros(4, 1)})
        writer.complete({})
    folder = library.path / "documents" / "book"
    good = safetensors_file({"a": entry(), "empty": entry(shape=(4, 0), offsets=(16, 16))})
    put(folder, "kv-00000.safetensors", good)
    assert library.document("book").take("kv", torch.tensor([3]))["a"] == 0
    put(folder, "kv-00000.safetensors", data)
    with pytest.raises(StateMismatch, match="kv-00000"):
        library.document("book")


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        ("tokens", {"ids": entry()}),
        ("tokens", {"ids": entry(), "starts": entry("I16", (4,), (16, 24))}),
        ("tokens", {"ids": entry(), "starts": entry("I64", (4, 1), (16, 48))}),
        ("lines", {"newlines": entry("F64", (LINES,), (0, 8 * LINES))}),
        ("embeddings", {"scales": entry("F32", (4, 2), (0, 32))}),
    ],
)
def test_tensors_that_are_not_those_of_their_group_are_refused_at_open(library, file, entries):
    write(library)
    end = max(item["data_offsets"][1] for item in entries.values())
    name = f"{file}-00000.safetensors"
    put(library.path / "documents" / "book", name, safetensors_file(entries, bytes(end)))
    with pytest.raises(StateMismatch, match=f"{file}.*tensors"):
        library.document("book")


def test_a_tensor_that_is_missing_is_named(library):
    write(library)
    folder = library.path / "documents" / "book"
    put(folder, "memory-00000.safetensors", safetensors_file({"ids": entry()}))
    with pytest.raises(StateMismatch, match="no tensor 'keys'"):
        library.document("book").take("memory", torch.tensor([], dtype=torch.long), ("keys",))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(shard_writer.compress_member(b"\0" * (1 << 24)), id="more-than-a-member"),
        pytest.param(shard_writer.compress_member(b"short"), id="less"),
        pytest.param(shard_writer.compress_member(FIRST + SECOND)[:-1], id="no-crc"),
        pytest.param(shard_writer.compress_member(FIRST + SECOND)[:-8] + b"\0" * 8, id="false-crc"),
        pytest.param(b"no gzip at all", id="no-gzip"),
    ],
)
def test_hostile_text_is_refused(library, data):
    write(library)
    put(library.path / "documents" / "book", "text-00000.gz", data)
    document = library.document("book")
    with pytest.raises(StateMismatch, match="text-00000"):
        document.text(0, 0, 4)
