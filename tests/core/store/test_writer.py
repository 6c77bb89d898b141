"""Writing a document: what it depends on, what a checkpoint holds, and what is refused."""

import hashlib

import pytest
import torch
from small_documents import (
    FIRST,
    HEADER,
    SECOND,
    TOKENS,
    Killed,
    add_source,
    embeddings,
    files_of,
    stopped_writer,
    write,
)

from longctx.core.store.document import Document

pytestmark = pytest.mark.usefixtures("no_sync")


def test_bytes_depend_on_nothing_but_the_content(library, small):
    write(library, "a")
    write(library, "b", checkpoints=(0, 2, 3, 4, 17, TOKENS - 1))
    a, b = (files_of(library.path / "documents" / name) for name in "ab")
    assert a == b  # also the manifest: the name is that of the folder alone


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": 3}, "3 is no str"),
        ({"options": []}, "is no dict"),
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
    assert (two.size, two.tokens, two.encoding, two.undecodable) == (30, 1, None, None)
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

        monkeypatch.setattr("longctx.core.store.places.write_text", stop)
        writer.checkpoint({"number": torch.tensor(2)})
    document = Document(library.path / "unfinished" / "book")
    document.verify()
    assert document.snapshot()["number"] == 1
    assert document.text(0, 0, len(FIRST)) == FIRST
