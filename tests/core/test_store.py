"""The library, its documents and their files: what is written is read, or an error says why."""

import errno
import gzip
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from xxhash import xxh3_128_hexdigest

from longctx.core import shard_writer, shards
from longctx.core.document import Document
from longctx.core.errors import Locked, LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.manifest import FORMAT, Manifest
from longctx.core.store import Library
from longctx.core.writer import Writer

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


class Killed(BaseException):
    """Stands for the death of the process at some point."""


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """No test cuts the power, and waiting for the disk is most of the time."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


@pytest.fixture
def small(monkeypatch):
    """Blocks, members and files so small that a short document has many."""
    monkeypatch.setattr(shards, "BLOCK", 64)
    monkeypatch.setattr(shards, "MEMBER", 8)
    monkeypatch.setattr(shards, "MEMBERS", 3)


def add_source(writer, name: str, data: bytes, step: int = 7, **file) -> None:
    writer.begin_source(name, **file)
    for start in range(0, len(data), step):
        writer.add_bytes(data[start : start + step])
    starts = torch.arange(0, len(data), 2)
    writer.append("tokens", {"ids": starts.int() * 3, "starts": starts})
    writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", data.count(b"\xff"))


def embeddings(count: int, start: int = 0) -> dict[str, torch.Tensor]:
    rows = torch.arange(start, start + count)
    vectors = (rows[:, None, None] + torch.arange(6).view(1, 2, 3)) % 100
    return {"vectors": vectors.to(torch.int8), "scales": rows[:, None].expand(-1, 2).half()}


SNAPSHOT = {
    "keys": torch.arange(24).view(2, 3, 4).bfloat16(),
    "count": torch.tensor(7),
    "none": torch.empty(0, 5),
}
TOKENS = -(-len(FIRST) // 2) + -(-len(SECOND) // 2)


def write(library, name="book", checkpoints=(), shard_rows=4, replace=False) -> Manifest:
    """The document that most tests read; `checkpoints` are the rows after which one is made."""
    with library.writer(name, HEADER, replace, shard_rows) as writer:
        add_source(writer, "one.txt", FIRST, path=Path("in/one.txt"), mtime_ns=5)
        add_source(writer, "two.txt", SECOND, step=11)
        for row in range(TOKENS):
            writer.append("embeddings", embeddings(1, row))
            if row in checkpoints:
                writer.checkpoint({"tail": torch.tensor([row])}, report={"row": row})
        return writer.complete(SNAPSHOT, report={"forced_splits": 0})


@contextmanager
def stopped_writer(library, **options) -> Iterator[Writer]:
    """A writer whose process dies at the end of the block, if not before."""
    with suppress(Killed), library.writer("book", HEADER, **options) as writer:
        yield writer
        raise Killed


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def forge(folder: Path, change) -> None:
    """Change the manifest's data and give it a checksum that fits."""
    data = json.loads((folder / "manifest.json").read_text())
    del data["checksum"]
    change(data)
    text = json.dumps(data, sort_keys=True, indent=1) + "\n"
    data["checksum"] = xxh3_128_hexdigest(text.encode())
    (folder / "manifest.json").write_text(json.dumps(data))


# ---- round trip


@pytest.mark.usefixtures("small")
def test_everything_written_is_read_back(library):
    manifest = write(library)
    document = library.document("book")
    assert document.manifest == manifest
    assert (manifest.status, manifest.tokens, manifest.method) == ("complete", TOKENS, "reform")
    assert manifest.report == {"forced_splits": 0}
    one, two = manifest.sources
    assert (one.name, one.path, one.mtime_ns, one.size) == ("one.txt", "in/one.txt", 5, len(FIRST))
    assert (two.path, two.mtime_ns, two.undecodable) == (None, None, 3)
    assert (two.first_token, two.text_start) == (one.tokens, len(FIRST))
    assert two.sha256 == hashlib.sha256(SECOND).hexdigest()
    parts = list(document.rows("embeddings"))
    assert [first for first, _ in parts] == list(range(0, TOKENS, 4))
    for name, expected in embeddings(TOKENS).items():
        assert torch.equal(torch.cat([rows[name] for _, rows in parts]), expected)
    snapshot = document.snapshot()
    assert snapshot.keys() == SNAPSHOT.keys()
    for name, expected in SNAPSHOT.items():
        assert snapshot[name].dtype == expected.dtype
        assert torch.equal(snapshot[name], expected)
    document.verify()


def test_text_files_are_plain_gzip_of_the_sources(library, small):
    write(library)
    files = sorted((library.path / "documents" / "book").glob("text-*.gz"))
    assert len(files) == -(-len(FIRST + SECOND) // 24)
    assert b"".join(gzip.decompress(path.read_bytes()) for path in files) == FIRST + SECOND


def test_text_is_exact_for_any_range(library, small):
    write(library)
    document = library.document("book")
    for index, data in enumerate((FIRST, SECOND)):
        for start in range(len(data) + 1):
            for end in (start, start + 1, start + 9, start + 30, len(data)):
                if end <= len(data):
                    assert document.text(index, start, end) == data[start:end]
        with pytest.raises(ValueError, match=f"has {len(data)} bytes"):
            document.text(index, 0, len(data) + 1)


def test_text_over_members_of_the_real_size(library):
    data = random.Random(4).randbytes(1 << 20) * 2 + b"\nend"
    with library.writer("large", HEADER) as writer:
        writer.begin_source("large")
        writer.add_bytes(data)
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "latin-1", 0)
        manifest = writer.complete({})
    [text] = [shard for shard in manifest.shards if shard.group == "text"]
    assert (len(text.members), text.raw) == (3, len(data))
    document = library.document("large")
    around = (1 << 20) - 5, (1 << 20) + 5
    assert document.text(0, *around) == data[slice(*around)]
    assert document.line(0, len(data) - 1) == data.count(b"\n") + 1
    document.verify()


def test_lines_are_counted_in_their_own_source(library, small):
    write(library)
    document = library.document("book")
    for index, data in enumerate((FIRST, SECOND)):
        for offset in range(len(data) + 1):
            assert document.line(index, offset) == 1 + data[:offset].count(b"\n")


def test_spans_follow_the_tokens_of_one_source(library):
    write(library)
    document = library.document("book")
    border = document.manifest.sources[1].first_token
    assert document.span(0, 3) == (0, 0, 6)
    assert document.span(border - 1, border) == (0, 18, len(FIRST))
    assert document.span(border, border + 1) == (1, 0, 2)
    assert document.span(TOKENS - 2, TOKENS) == (1, len(SECOND) - 4, len(SECOND))
    assert [document.source_of(token) for token in (0, border - 1, border)] == [0, 0, 1]
    for first, last in ((border - 1, border + 1), (3, 3), (TOKENS, TOKENS + 1), (-1, 1)):
        with pytest.raises(ValueError, match="tokens"):
            document.span(first, last)


def test_take_reads_rows_across_shards(library, small):
    write(library)
    document, expected = library.document("book"), embeddings(TOKENS)
    for rows in ([0], [3, 4], [0, 5, 6, 7, 8, 21], [2, 2, 9], list(range(TOKENS)), []):
        rows = torch.tensor(rows, dtype=torch.int64)
        taken = document.take("embeddings", rows)
        assert taken.keys() == expected.keys()
        for name, tensor in taken.items():
            assert tensor.dtype == expected[name].dtype
            assert torch.equal(tensor, expected[name][rows])
    assert document.take("embeddings", rows, ("scales",)).keys() == {"scales"}
    for rows in ([4, 3], [-1], [TOKENS]):
        with pytest.raises(ValueError, match="must ascend"):
            document.take("embeddings", torch.tensor(rows))


def test_sources_without_bytes_and_sources_dropped(library):
    with library.writer("few", HEADER) as writer:
        writer.begin_source("unreadable")
        add_source(writer, "empty", b"")
        add_source(writer, "one", FIRST)
        writer.begin_source("unreadable too")
        manifest = writer.complete({})
    assert [source.name for source in manifest.sources] == ["empty", "one"]
    document = library.document("few")
    assert document.source_of(0) == 1
    assert document.text(0, 0, 0) == b""
    assert document.line(1, 4) == 2


def test_an_empty_document(library):
    with library.writer("empty", HEADER) as writer:
        writer.complete({})
    document = library.document("empty")
    assert document.manifest.tokens == 0
    assert document.take("tokens", torch.empty(0).long())["ids"].dtype == torch.int32
    assert document.snapshot() == {}


# ---- the writer


def test_bytes_depend_on_nothing_but_the_content(library, small):
    write(library, "a")
    write(library, "b", checkpoints=(0, 2, 3, 4, 17, TOKENS - 1))
    a, b = (files_of(library.path / "documents" / name) for name in "ab")
    assert a.pop("manifest.json") != b.pop("manifest.json")  # the name
    assert a == b


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": 3}, "method is 3"),
        ({"options": []}, "options is"),
        ({"model": {"name": "tiny"}}, "fingerprint"),
        ({"report": {"x": float("inf")}}, "JSON"),
    ],
)
def test_a_header_that_could_not_be_read_back_is_refused_at_once(library, change, message):
    with (
        pytest.raises(ValueError, match=message),
        library.writer("book", {**HEADER, **change}),
    ):
        pass
    with library.writer("book", HEADER) as writer, pytest.raises(ValueError, match=message):
        writer.checkpoint({}, **change)


def test_misuse_of_sources_is_refused(library):
    with library.writer("book", HEADER) as writer:
        with pytest.raises(ValueError, match="no source"):
            writer.add_bytes(b"x")
        writer.begin_source("a")
        writer.add_bytes(b"x")
        with pytest.raises(ValueError, match="still open"):
            writer.begin_source("b")
        with pytest.raises(ValueError, match="still open"):
            writer.complete({})
        with pytest.raises(ValueError, match="2 bytes"):
            writer.end_source(2, hashlib.sha256(b"x").hexdigest(), "utf-8", 0)


@pytest.mark.usefixtures("small")
def test_a_checkpoint_holds_all_that_came(library):
    with stopped_writer(library, shard_rows=4) as writer:
        add_source(writer, "one.txt", FIRST)
        writer.checkpoint({"old": torch.zeros(1)})
        writer.begin_source("two.txt")
        writer.add_bytes(SECOND[:30])
        writer.append("tokens", {"ids": torch.ones(1).int(), "starts": torch.tensor([0])})
        writer.append("embeddings", embeddings(6))
        writer.checkpoint({"position": torch.tensor(6)}, report={"forced_splits": 1})
        writer.append("embeddings", embeddings(7, 6))
    folder = library.path / "unfinished" / "book"
    document = Document(folder)
    document.verify()
    manifest = document.manifest
    assert (manifest.status, manifest.tokens) == ("reading", 11)
    assert manifest.report == {"forced_splits": 1}
    two = manifest.sources[1]
    assert (two.size, two.tokens, two.encoding) == (30, 1, None)
    assert two.sha256 == hashlib.sha256(SECOND[:30]).hexdigest()
    assert document.text(1, 0, 30) == SECOND[:30]
    rows = torch.cat([rows["vectors"] for _, rows in document.rows("embeddings")])
    assert torch.equal(rows, embeddings(6)["vectors"])
    assert document.snapshot()["position"] == 6
    unnamed = set(files_of(folder)) - {shard.file for shard in manifest.shards}
    later = {"embeddings-00001.safetensors", "embeddings-00002.safetensors"}
    assert unnamed == {"manifest.json", *later}


def test_a_kill_in_a_checkpoint_leaves_the_one_before(library, monkeypatch):
    with stopped_writer(library) as writer:
        add_source(writer, "one.txt", FIRST)
        writer.checkpoint({"number": torch.tensor(1)})
        add_source(writer, "two.txt", SECOND)

        def stop(*args):
            raise Killed

        monkeypatch.setattr("longctx.core.writer.write_text", stop)
        writer.checkpoint({"number": torch.tensor(2)})
    document = Document(library.path / "unfinished" / "book")
    document.verify()
    assert document.snapshot()["number"] == 1
    assert document.text(0, 0, len(FIRST)) == FIRST


def test_what_killed_runs_left_is_cleared_away(library):
    unfinished = library.path / "unfinished"
    for name in ("book", ".book.old"):
        (unfinished / name).mkdir(parents=True)
        (unfinished / name / "kv-00000.safetensors").touch()
    with library.writer("book", HEADER):
        assert list(files_of(unfinished / "book")) == ["manifest.json"]
        assert not (unfinished / ".book.old").exists()


def test_a_file_is_synced_before_it_has_its_name_and_the_manifest_is_last(library, monkeypatch):
    events = []
    real = os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))

    def replace(source, target):
        assert events[-1] == os.stat(source).st_ino
        events.append(Path(target).name)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with stopped_writer(library) as writer:
        add_source(writer, "one.txt", FIRST)
        writer.checkpoint({})
        named = [event for event in events if isinstance(event, str)]
    assert (len(named), named[0], named[-1]) == (5 + 1, "manifest.json", "manifest.json")
    assert isinstance(events[-1], int)  # the folder


# ---- one writer, one name


def test_a_stopped_writer_changes_no_document_and_can_be_repeated(library):
    with stopped_writer(library) as writer:
        add_source(writer, "one.txt", FIRST)
    assert not list((library.path / "documents").glob("*"))
    with pytest.raises(NotFound, match="not finished"):
        library.document("book")
    assert [manifest.status for manifest in library.documents()] == ["reading"]
    write(library)
    assert library.document("book").manifest.tokens == TOKENS
    assert not list((library.path / "unfinished").iterdir())


def test_replace_keeps_the_old_document_until_the_new_is_complete(library):
    write(library)
    with pytest.raises(UsageError, match="--replace"):
        write(library)
    before = files_of(library.path / "documents" / "book")
    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.checkpoint({})
        assert files_of(library.path / "documents" / "book") == before
    assert files_of(library.path / "documents" / "book") == before
    with library.writer("book", HEADER, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.complete({})
    assert library.document("book").text(0, 0, 3) == b"new"
    assert not list((library.path / "unfinished").iterdir())


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_between_the_last_renames_loses_no_document(library, monkeypatch, renames):
    write(library)
    real, done = Path.replace, []

    def stop(self, target):
        if self.parent.name in ("documents", "unfinished"):
            if len(done) == renames:
                raise Killed
            done.append(target)
        return real(self, target)

    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        monkeypatch.setattr(Path, "replace", stop)
        writer.complete({})
    monkeypatch.undo()
    expected = b"new" if renames else FIRST[:3]
    assert library.document("book").text(0, 0, 3) == expected
    assert library.latest() == "book"
    with pytest.raises(UsageError, match="--replace"):
        write(library)
    assert library.document("book").text(0, 0, 3) == b"new"  # the next writer ended it
    assert not list((library.path / "unfinished").iterdir())


def test_the_second_writer_is_refused(library):
    with library.writer("book", HEADER):
        with pytest.raises(Locked, match="'book' is being written"), library.writer("book", HEADER):
            pass
        with pytest.raises(Locked):
            library.remove("book")
        write(library, "other")
    write(library)


def test_a_lock_file_left_by_a_killed_process_locks_nothing(library):
    (library.path / "unfinished").mkdir()
    (library.path / "unfinished" / ".book.lock").touch()
    write(library)
    assert not list((library.path / "unfinished").iterdir())


def test_remove(library):
    write(library)
    write(library, "other")
    library.remove("book")
    assert [manifest.name for manifest in library.documents()] == ["other"]
    with pytest.raises(NotFound, match="it holds other"):
        library.remove("book")
    with library.writer("book", HEADER):
        pass
    library.remove("book")
    assert not list((library.path / "unfinished").iterdir())


def test_a_killed_removal_leaves_nothing_that_opens(library, monkeypatch):
    write(library)

    def stop(path):
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(Killed):
        library.remove("book")
    monkeypatch.undo()
    assert library.documents() == []
    with pytest.raises(NotFound):
        library.document("book")
    library.remove("book")
    assert not list((library.path / "unfinished").iterdir())


def test_an_open_document_does_not_read_the_files_of_its_successor(library):
    write(library)
    document = library.document("book")
    rows = torch.tensor([0])
    document.take("tokens", rows)
    with library.writer("book", HEADER, replace=True, shard_rows=4) as writer:
        add_source(writer, "two.txt", SECOND + FIRST)
        writer.complete(SNAPSHOT)
    with pytest.raises(StateMismatch, match="replaced meanwhile"):
        document.take("tokens", rows)


# ---- libraries


def test_open(tmp_path):
    with pytest.raises(NotFound, match="longctx ingest"):
        Library.open(tmp_path / "none")
    made = tmp_path / "a" / "b"
    Library.open(made, create=True)
    assert (made / "library.json").read_bytes() == b'{\n "format": 1\n}\n'
    assert Library.open(made).documents() == []
    with pytest.raises(NotFound, match="no document"):
        Library.open(made).latest()
    with pytest.raises(UsageError, match=r"no library\.json"):
        Library.open(tmp_path, create=True)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        Library.open(tmp_path / "file", create=True)
    with pytest.raises(LongctxError, match="cannot write"):
        Library.open(tmp_path / "file" / "library", create=True)
    with pytest.raises(LongctxError, match="cannot open"):
        Library.open(tmp_path / ("x" * 300))
    (made / "library.json").write_text('{"format": 2}')
    with pytest.raises(StateMismatch, match="format 1"):
        Library.open(made)


def test_documents_and_latest(library):
    for name in ("b", "a", "c"):
        write(library, name)
    for age, name in enumerate(("a", "c", "b")):
        os.utime(library.path / "documents" / name / "manifest.json", ns=(age, age))
    assert library.latest() == "b"
    (library.path / "documents" / "a" / "manifest.json").write_text("{")
    found = {manifest.name: manifest for manifest in library.documents()}
    assert [found[name].status for name in "abc"] == ["damaged", "complete", "complete"]
    assert "manifest.json" in found["a"].report["error"]
    with pytest.raises(NotFound, match="it holds a, b, c"):
        library.document("d")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".x", "a/b", "../a", "a\\b", "a b", "a\n", "é", "x" * 101, "/a", "a\0"],
)
def test_hostile_names_are_refused(library, name):
    with pytest.raises(UsageError, match="cannot be the name"):
        library.document(name)
    with pytest.raises(UsageError), library.writer(name, HEADER):
        pass
    with pytest.raises(UsageError):
        library.remove(name)


def test_sources_may_have_any_name(library):
    path = os.fsdecode(b"caf\xe9/../\xff\n.txt")
    with library.writer("-rf", HEADER) as writer:
        add_source(writer, path, FIRST, path=path)
        writer.complete({})
    assert library.document("-rf").manifest.sources[0].path == path


# ---- damage


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


def test_every_byte_of_a_manifest_counts(library):
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    good = path.read_bytes()
    for position in range(0, len(good), 97):
        if good[position] not in b" \n":
            flip(path, position)
            with pytest.raises(StateMismatch):
                library.document("book")
            path.write_bytes(good)
    library.document("book")


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


def test_another_format_version_names_both_and_the_way_out(library):
    write(library)
    folder = library.path / "documents" / "book"
    forge(folder, lambda data: data.update(format=2, novel=1))
    with pytest.raises(StateMismatch) as caught:
        library.document("book")
    assert "has format 2" in str(caught.value)
    assert "reads format 1" in str(caught.value)
    assert "longctx ingest in/one.txt --name book --replace" in str(caught.value)


def in_shard(group, /, **changes):
    def change(data):
        next(shard for shard in data["shards"] if shard["group"] == group).update(changes)

    return change


def in_source(**changes):
    return lambda data: data["sources"][0].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(extra=1),
        lambda data: data.pop("method"),
        lambda data: data.update(name="other"),
        lambda data: data.update(status="finished"),
        lambda data: data.update(status="damaged"),
        lambda data: data.update(tokens=True),
        lambda data: data.update(tokens=data["tokens"] + 1),
        lambda data: data.update(options=[]),
        lambda data: data.update(sources={}),
        lambda data: data.update(format="1"),
        lambda data: data["model"].pop("weights"),
        lambda data: data["shards"].reverse(),
        lambda data: data["shards"].append(data["shards"][0]),
        lambda data: data.update(report={"seconds": float("nan")}),
        lambda data: data["sources"][-1].update(size=1),
        lambda data: data["sources"][-1].update(tokens=1),
        in_source(size=-1),
        in_source(tokens=3),
        in_source(text_start=1),
        in_source(path=3),
        in_source(surprise=None),
        in_shard("tokens", file="../../../tokens-00000.safetensors"),
        in_shard("tokens", file="/tokens-00000.safetensors"),
        in_shard("tokens", file="manifest.json"),
        in_shard("tokens", file="tokens-00000.gz"),
        in_shard("tokens", file="tokens-00000.00001.safetensors"),
        in_shard("tokens", file="tokens-00000.safetensors\n"),
        in_shard("tokens", file="memory-00000.safetensors"),
        in_shard("tokens", group="../tokens"),
        in_shard("tokens", blocks=[]),
        in_shard("tokens", rows=-4),
        in_shard("tokens", raw=4),
        in_shard("text", members=[]),
        in_shard("text", members=None, raw=None),
        in_shard("text", raw=1 << 40),
        in_shard("text", raw=0),
        in_shard("text", rows=2),
    ],
)
def test_a_hostile_manifest_is_refused(library, change):
    write(library)
    forge(library.path / "documents" / "book", change)
    with pytest.raises(StateMismatch, match=r"manifest\.json"):
        library.document("book")
    assert [manifest.status for manifest in library.documents()] == ["damaged"]


def test_text_files_that_are_not_full_are_refused(library, small):
    """Where a byte lies is computed from full files."""
    write(library)

    def move_a_byte(data):
        texts = [shard for shard in data["shards"] if shard["group"] == "text"]
        texts[0]["raw"] -= 1
        texts[-1]["raw"] += 1

    forge(library.path / "documents" / "book", move_a_byte)
    with pytest.raises(StateMismatch, match="not full"):
        library.document("book")


@pytest.mark.parametrize(
    "text", ["", "null", "[{}]", "[" * 100_000, "\udcff", '{"format": 1}', "{} {}"]
)
def test_a_manifest_that_is_none_is_refused(library, text):
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StateMismatch, match=r"manifest\.json"):
        library.document("book")


def put(library, file: str, data: bytes) -> None:
    """Put other bytes in the place of a file, with size and checksums that fit."""
    folder = library.path / "documents" / "book"
    (folder / file).write_bytes(data)
    changes = {"size": len(data), "blocks": [xxh3_128_hexdigest(data)]}
    if file.endswith(".gz"):
        changes["members"] = [len(data)]
    forge(folder, in_shard(file.split("-")[0], **changes))


def safetensors_file(header: object, data: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="I32", shape=(4,), offsets=(0, 16)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (1 << 62).to_bytes(8, "little"),
        safetensors_file(b"{"),
        safetensors_file([]),
        safetensors_file({"ids": 3}),
        safetensors_file({"ids": entry(offsets=(0, 15))}),
        safetensors_file({"ids": entry(offsets=(-16, 0))}),
        safetensors_file({"ids": entry(offsets=(56, 72))}),
        safetensors_file({"ids": entry(shape=(5,), offsets=(0, 20))}),
        safetensors_file({"ids": entry(shape=(4.0,))}),
        safetensors_file({"ids": entry(shape=(4, -1), offsets=(0, -16))}),
        safetensors_file({"ids": entry(dtype="PICKLE")}),
        safetensors_file({"__metadata__": {"a": "b"}}),
    ],
)
def test_a_hostile_tensor_header_is_refused_at_open(library, data):
    write(library)
    if data:
        put(library, "tokens-00000.safetensors", data)
    else:
        forge(library.path / "documents" / "book", in_shard("tokens", size=0, blocks=[]))
        (library.path / "documents" / "book" / "tokens-00000.safetensors").write_bytes(data)
    with pytest.raises(StateMismatch, match="tokens-00000"):
        library.document("book")


def test_a_tensor_that_is_missing_is_named(library):
    write(library)
    put(library, "tokens-00000.safetensors", safetensors_file({"ids": entry()}))
    with pytest.raises(StateMismatch, match="no tensor 'starts'"):
        library.document("book").span(0, 1)


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
    put(library, "text-00000.gz", data)
    document = library.document("book")
    with pytest.raises(StateMismatch, match="text-00000"):
        document.text(0, 0, 4)


def test_a_group_that_is_not_kept(library):
    write(library)
    with pytest.raises(StateMismatch, match=r"keeps no 'kv'.*reform"):
        library.document("book").take("kv", torch.tensor([0]))


def test_require_model(library):
    write(library)
    document = library.document("book")
    document.require_model({**MODEL, "name": "a copy elsewhere"})
    other = {"name": "large", "config": "c1", "tokenizer": "t0", "weights": "w1"}
    with pytest.raises(StateMismatch) as caught:
        document.require_model(other)
    assert "read with the model tiny" in str(caught.value)
    assert "large has another config and weights" in str(caught.value)
    assert "--model tiny" in str(caught.value)


# ---- disk full


def no_space(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


def no_space_in_rust(*args):
    raise SafetensorError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("place", "fault"),
    [("os.fsync", no_space), ("safetensors.torch.save_file", no_space_in_rust)],
)
def test_a_full_disk_is_an_error_with_figures_and_loses_nothing(library, monkeypatch, place, fault):
    write(library)
    before = files_of(library.path / "documents" / "book")
    with stopped_writer(library, replace=True, shard_rows=8) as writer:
        monkeypatch.setattr(place, fault)
        figures = r"No space left.*160 bytes needed, [\d,]+ bytes free"
        with pytest.raises(LongctxError, match=figures):
            writer.append("kv", {"keys": torch.zeros(8, 5)})
    monkeypatch.undo()
    assert files_of(library.path / "documents" / "book") == before
    assert list(files_of(library.path / "unfinished" / "book")) == ["manifest.json"]
    write(library, replace=True)


# ---- the format


def test_compress_member_is_a_gzip_member_without_time():
    packed = shard_writer.compress_member(FIRST)
    assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(packed + shard_writer.compress_member(SECOND)) == FIRST + SECOND


GOLDEN = {
    "embeddings-00000": "65224fb6dc95e5d85e6848e55a47775439f7853e03f09a4925fdef2d4a6b0cf2",
    "embeddings-00001": "f30a18f0e604b8fbbeedce64b2d9d844ff543f72cdb5df05d9e98ff0a17fbaff",
    "lines-00000": "f1679eb030a061be49197dfbcb48dac3863cbbbc7d5da94707afddd824735782",
    "memory-00000": "319b7e1e40701a749b77de375595f757aeb2e123663bee529fec9cd93f4e3fa8",
    "tokens-00000": "5d337c346d87167e65b1858ae44bd7ffa252fb6c80e72e5b8e955411c1e79ccc",
    "tokens-00001": "7ba5dcde4feae5f698c6a5058c3fb6c5b3d556942a49b7dee8e1579f1eab63e2",
}
GOLDEN_MANIFEST = """\
{
 "format": 1,
 "method": "reform",
 "model": {
  "config": "c0",
  "name": "tiny",
  "tokenizer": "t0",
  "weights": "w0"
 },
 "name": "golden",
 "options": {
  "chunk": 8
 },
 "profile": {
  "name": "tiny"
 },
 "recorded": {
  "dtype": "float32"
 },
 "report": {
  "forced_splits": 0
 },
 "shards": [
  {
   "blocks": [
    "e9857511e8da276ca5d90331631306c8"
   ],
   "file": "embeddings-00000.safetensors",
   "group": "embeddings",
   "rows": 4,
   "size": 176
  },
  {
   "blocks": [
    "775e6f53538858bfd5806ad5f6206d3a"
   ],
   "file": "embeddings-00001.safetensors",
   "group": "embeddings",
   "rows": 2,
   "size": 156
  },
  {
   "blocks": [
    "dcee79fd954f0a10cf555f8b72ff25b6"
   ],
   "file": "lines-00000.safetensors",
   "group": "lines",
   "rows": 3,
   "size": 96
  },
  {
   "blocks": [
    "bcb2180f90c4bcac9e5b28bd1206c83c"
   ],
   "file": "memory-00000.safetensors",
   "group": "memory",
   "rows": 0,
   "size": 248
  },
  {
   "blocks": [
    "HASH"
   ],
   "file": "text-00000.gz",
   "group": "text",
   "members": [
    SIZE
   ],
   "raw": 11,
   "rows": 1,
   "size": SIZE
  },
  {
   "blocks": [
    "bcc6602ba656088d04f642b2dfad16d1"
   ],
   "file": "tokens-00000.safetensors",
   "group": "tokens",
   "rows": 4,
   "size": 176
  },
  {
   "blocks": [
    "f671909f478f32d9953203f0e30ceb2b"
   ],
   "file": "tokens-00001.safetensors",
   "group": "tokens",
   "rows": 2,
   "size": 152
  }
 ],
 "sources": [
  {
   "encoding": "utf-8",
   "first_token": 0,
   "mtime_ns": 1,
   "name": "a.txt",
   "path": "in/a.txt",
   "sha256": "c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8",
   "size": 8,
   "text_start": 0,
   "tokens": 4,
   "undecodable": 0
  },
  {
   "encoding": "utf-8",
   "first_token": 4,
   "mtime_ns": null,
   "name": "-",
   "path": null,
   "sha256": "400b040bcb5facec6cf237f11a05a197bdc70dc1374bb2572940915403aa6cbd",
   "size": 3,
   "text_start": 8,
   "tokens": 2,
   "undecodable": 1
  }
 ],
 "status": "complete",
 "tokens": 6
}
"""


def test_golden_bytes(library):
    """The files of format 1. If this fails, the format has changed: that needs another version."""
    with library.writer("golden", {**HEADER, "profile": {"name": "tiny"}}, shard_rows=4) as writer:
        add_source(writer, "a.txt", b"one\ntwo\n", path="in/a.txt", mtime_ns=1)
        add_source(writer, "-", b"\xff3\n")
        writer.append("embeddings", embeddings(6))
        writer.complete(SNAPSHOT, report={"forced_splits": 0})
    files = files_of(library.path / "documents" / "golden")
    text = files.pop("text-00000.gz")  # deflate may differ between builds of zlib
    assert text[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(text) == b"one\ntwo\n\xff3\n"
    manifest = files.pop("manifest.json").decode()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert hashes == {f"{name}.safetensors": value for name, value in GOLDEN.items()}
    first, checksum, rest = manifest.split("\n", 2)
    rest = f"{first}\n{rest}"
    assert checksum == f' "checksum": "{xxh3_128_hexdigest(rest.encode())}",'
    expected = GOLDEN_MANIFEST.replace("SIZE", str(len(text)))
    assert rest == expected.replace("HASH", xxh3_128_hexdigest(text))


def test_an_independent_writer_of_the_format_is_read(library, tmp_path):
    """The files alone, made by hand from docs/format.md, are a document."""
    folder = library.path / "documents" / "hand"
    folder.mkdir(parents=True)
    data = b"by hand\nand by head\n"
    (folder / "text-00000.gz").write_bytes(gzip.compress(data, mtime=0))
    newlines = torch.tensor([i for i, byte in enumerate(data) if byte == 10])
    save_file({"newlines": newlines}, folder / "lines-00000.safetensors")
    tokens = {"ids": torch.tensor([4, 5]).int(), "starts": torch.tensor([0, 8])}
    save_file(tokens, folder / "tokens-00000.safetensors")
    save_file({}, folder / "memory-00000.safetensors")
    entries = []
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        group = path.name.split("-")[0]
        rows = {"text": 1, "lines": 2, "tokens": 2, "memory": 0}[group]
        blocks = [xxh3_128_hexdigest(raw)]
        entries.append(
            {"file": path.name, "group": group, "rows": rows, "size": len(raw), "blocks": blocks}
        )
        if group == "text":
            entries[-1] |= {"members": [len(raw)], "raw": len(data)}
    source = {
        "name": "hand.txt",
        "path": None,
        "size": len(data),
        "mtime_ns": None,
        "sha256": hashlib.sha256(data).hexdigest(),
        "encoding": "ascii",
        "undecodable": 0,
        "first_token": 0,
        "tokens": 2,
        "text_start": 0,
    }
    manifest = {
        **HEADER,
        "format": 1,
        "status": "complete",
        "name": "hand",
        "tokens": 2,
        "sources": [source],
        "report": {},
        "shards": entries,
        "checksum": "",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    forge(folder, lambda data: None)
    document = library.document("hand")
    assert document.text(*document.span(1, 2)) == b"and by head\n"
    assert document.line(0, 8) == 2
    assert (
        document.manifest.to_json()
        == json.dumps(json.loads((folder / "manifest.json").read_text()), sort_keys=True, indent=1)
        + "\n"
    )


def test_the_format_version_is_one():
    assert FORMAT == 1
