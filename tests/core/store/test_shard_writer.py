"""Writing files: rows and text come in pieces and leave as whole shards."""

import gzip
import hashlib

import pytest
import torch
from small_documents import FIRST, HEADER, SECOND, write

from longctx.core.store import shard_writer
from longctx.core.store.confined import Confined

pytestmark = pytest.mark.usefixtures("no_sync")


def test_compress_member_is_a_gzip_member_without_time():
    packed = shard_writer.compress_member(FIRST)
    assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(packed + shard_writer.compress_member(SECOND)) == FIRST + SECOND


def test_text_files_are_plain_gzip_of_the_sources(library, small):
    write(library)
    files = sorted((library.path / "documents" / "book").glob("text-*.gz"))
    assert len(files) == -(-len(FIRST + SECOND) // 24)
    assert b"".join(gzip.decompress(path.read_bytes()) for path in files) == FIRST + SECOND


def test_shards_are_full_but_the_last_and_written_at_once(library):
    with library.writer("book", HEADER, shard_rows=4) as writer:
        folder = library.path / "unfinished" / "book"
        writer.append("spans", {"x": torch.arange(11)})
        assert sorted(path.name for path in folder.glob("spans-*")) == [
            "spans-00000.safetensors",
            "spans-00001.safetensors",
        ]
        manifest = writer.complete({})
    assert [shard.rows for shard in manifest.shards if shard.group == "spans"] == [4, 4, 3]


def test_wide_rows_get_fewer_to_a_shard(library, monkeypatch):
    monkeypatch.setattr(shard_writer, "SHARD_BYTES", 100)
    with library.writer("book", HEADER, shard_rows=64) as writer:
        writer.append("kv", {"keys": torch.zeros(20, 6), "values": torch.zeros(20, 2)})
        manifest = writer.complete({})
    assert [shard.rows for shard in manifest.shards if shard.group == "kv"] == [2] * 10


def test_rows_are_copied(library):
    reused = torch.zeros(2, 3)
    with library.writer("book", HEADER) as writer:
        writer.append("kv", {"keys": reused})
        reused.fill_(1)
        writer.append("kv", {"keys": reused})
        writer.complete({"twice": reused, "same": reused, "part": reused[:, 1:]})
    document = library.document("book")
    [(_, rows)] = document.rows("kv")
    assert rows["keys"].sum(1).tolist() == [0, 0, 3, 3]
    assert document.snapshot()["part"].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("text", {"x": torch.zeros(1)}),
        ("memory", {"x": torch.zeros(1)}),
        ("tokens", {"ids": torch.zeros(1).long(), "starts": torch.zeros(1).long()}),
        ("kv", {"keys": torch.zeros(2, 3), "values": torch.zeros(3, 3)}),
        ("kv", {"keys": torch.zeros(2, 4), "values": torch.zeros(2, 3)}),
        ("kv", {"keys": torch.zeros(2, 3)}),
    ],
)
def test_rows_unlike_their_group_are_refused(library, group, rows):
    with library.writer("book", HEADER) as writer:
        writer.append("kv", {"keys": torch.zeros(1, 3), "values": torch.zeros(1, 3)})
        with pytest.raises(ValueError, match=group):
            writer.append(group, rows)


def test_bad_group_names_and_types_are_refused(library):
    with library.writer("book", HEADER) as writer:
        for group in ("../x", "A", "a-b", "", "a/b"):
            with pytest.raises(ValueError, match="name of a group"):
                writer.append(group, {"x": torch.zeros(1)})
            assert not list(library.path.rglob("*x-0*"))
        with pytest.raises(ValueError, match=r"not \{\} of set"):
            writer.append("kv", {})
        with pytest.raises(ValueError, match="complex64"):
            writer.checkpoint({"x": torch.zeros(1, dtype=torch.complex64)})


def test_ids_and_places_are_as_wide_as_each_file_needs(library):
    """Readers get them in one type, whatever a file has."""
    ids = torch.tensor([0, (1 << 15) - 1, 1 << 15, 7], dtype=torch.int32)
    starts = torch.tensor([0, (1 << 31) - 1, 1 << 31, 1 << 40])
    with library.writer("wide", HEADER, shard_rows=2) as writer:
        writer.begin_source("a")
        writer.append("tokens", {"ids": ids, "starts": starts})
        writer.end_source(0, hashlib.sha256().hexdigest(), "utf-8", 0)
        manifest = writer.complete({})
    sizes = [shard.size for shard in manifest.shards if shard.group == "tokens"]
    assert sizes[1] - sizes[0] == 2 * (12 - 6)
    document = library.document("wide")
    found = [rows for _, rows in document.rows("tokens")]
    assert torch.equal(torch.cat([rows["ids"] for rows in found]), ids)
    assert torch.equal(torch.cat([rows["starts"] for rows in found]), starts)
    taken = document.take("tokens", torch.tensor([1, 2]))
    assert torch.equal(taken["ids"], ids[1:3])
    assert torch.equal(taken["starts"], starts[1:3])
    empty = document.take("tokens", torch.empty(0).long())
    assert (empty["ids"].dtype, empty["starts"].dtype) == (torch.int32, torch.int64)


def test_an_open_member_is_compressed_once_until_it_grows(tmp_path, monkeypatch):
    packed, own = [], shard_writer.compress_member

    def compress(data):
        packed.append(bytes(data))
        return own(data)

    monkeypatch.setattr(shard_writer, "compress_member", compress)
    writer = shard_writer.TextWriter(Confined(tmp_path))
    writer.add(b"one\ntwo\n")
    held = writer.held_bytes
    text, lines = writer.shards(0)
    assert held == text.size + 2 * 8
    assert lines.rows == 2
    writer.add(b"three")
    writer.shards(None)
    assert packed == [b"one\ntwo\n", b"one\ntwo\nthree"]
