"""Files of the word index: written with the document, kept when it grows, left alone if damaged."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_documents import HEADER, SNAPSHOT, add_source, files_of, flip, forge, word_table, write
from small_passages import small_passages

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store import word_files
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.shards import WORDS
from longctx.core.store.verify import verify
from longctx.core.store.word_files import damaged_tables, files_in, unchanged_tables

pytestmark = pytest.mark.usefixtures("no_sync")
SENTENCES = [f"page {i} tells of boat {i * 7919 % 997} and its salt" for i in range(90)]
FIRST_PART, WHOLE = "\n".join(SENTENCES[:60]).encode(), "\n".join(SENTENCES).encode()
BEFORE = 1100  # tokens of the boundary


@pytest.fixture
def few(monkeypatch) -> None:
    """A file of the index has the passages of so few tokens that a short document has many."""
    small_passages(monkeypatch, 16, 256)
    monkeypatch.setattr(word_files, "_LOOK", 64)


def put(library: Library, name: str, data: bytes, words=word_tables) -> Document:
    """A document of one source, with a token for every two bytes, that can be made longer."""
    boundary = Boundary(min(BEFORE, len(data) // 2), SNAPSHOT, 0)
    with library.writer(name, HEADER, shard_rows=64) as writer:
        add_source(writer, "log.txt", data, step=999)
        writer.complete(SNAPSHOT, boundary, words)
    return library.document(name)


def grow(library: Library, name: str, data: bytes, words=word_tables) -> Document:
    """Makes that document longer, from its boundary."""
    with library.longer(name) as longer:
        longer.shard_rows = 64
        document = longer.document
        [source] = document.manifest.sources
        text = data[: 2 * BEFORE]
        begun = replace(
            source,
            size=len(text),
            sha256=hashlib.sha256(text).hexdigest(),
            tokens=BEFORE,
            undecodable=None,
        )
        writer = longer.begin(HEADER, document.boundary(), (begun,), {})
        writer.add_bytes(data[2 * BEFORE :])
        starts = torch.arange(2 * BEFORE, len(data), 2)
        writer.append("tokens", {"ids": starts.int() * 3, "starts": starts})
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", 0)
        writer.complete(SNAPSHOT, Boundary(BEFORE, SNAPSHOT, 0), words)
    return library.document(name)


def test_the_index_is_written_with_the_document(library):
    tables = list(word_tables(put(library, "book", WHOLE)))
    document = library.document("book")
    document.verify()
    assert [shard.file for shard in files_in(document.manifest)] == ["words-00000.safetensors"]
    assert [shard.rows for shard in files_in(document.manifest)] == [0]
    assert document.word_files == len(tables) == 1
    for name, tensor in document.words(0).items():
        assert np.array_equal(tensor, tables[0][name])


def test_a_checkpoint_has_none(library):
    write(library, checkpoints=(3,))
    with library.writer("other", HEADER) as writer:
        add_source(writer, "a.txt", b"some words")
        writer.checkpoint(SNAPSHOT)
    assert not library.document("other", partial=True).manifest.has_words
    folder = library.path / "unfinished" / "other"
    shard = files_in(put(library, "book2", WHOLE).manifest)[0]
    os.link(library.path / "documents" / "book2" / shard.file, folder / shard.file)
    entry = {"file": shard.file, "group": WORDS, "rows": 0, "size": shard.size}

    def add(data: dict) -> None:
        data["shards"].append({**entry, "blocks": list(shard.blocks)})

    forge(folder, add)
    with pytest.raises(StateMismatch, match="checkpoints do not have"):
        library.document("other", partial=True)


def test_the_files_before_the_boundary_are_those_of_the_shorter_document(library, few):
    put(library, "log", FIRST_PART)
    folder = library.path / "documents" / "log"
    inodes = {name: os.stat(folder / name).st_ino for name in files_of(folder)}
    made = []

    def tables(document, first):
        made.append(first)
        return word_tables(document, first)

    longer = grow(library, "log", WHOLE, tables)
    kept = [
        shard.file
        for shard in files_in(longer.manifest)
        if (folder / shard.file).stat().st_ino == inodes.get(shard.file)
    ]
    assert [len(kept)] == made == [(BEFORE - 32 - 64) // 256]
    assert len(files_in(longer.manifest)) > len(kept) + 1
    put(library, "anew", WHOLE)
    assert files_in(longer.manifest) == files_in(library.document("anew").manifest)
    longer.verify()
    assert damaged_tables(longer) == {}


def test_no_file_is_kept_where_the_language_has_become_another(library, few):
    german = "".join(
        f"Seite {i} erzaehlt von dem Boot und nicht von den Booten\n" for i in range(60)
    )
    english = "".join(f"page {i} tells of the boat and not of the boats\n" for i in range(300))
    put(library, "log", german.encode())
    assert library.document("log").manifest.language == "de"
    longer = grow(library, "log", f"{german}{english}".encode())
    put(library, "anew", f"{german}{english}".encode())
    assert longer.manifest.language == "en"
    assert files_in(longer.manifest) == files_in(library.document("anew").manifest)


def test_a_damaged_file_is_not_kept(library, few):
    put(library, "log", FIRST_PART)
    flip(library.path / "documents" / "log" / "words-00002.safetensors", 200)
    assert len(unchanged_tables(library.document("log"), BEFORE)) == 2
    longer = grow(library, "log", WHOLE)
    assert damaged_tables(longer) == {}
    put(library, "anew", WHOLE)
    assert files_in(longer.manifest) == files_in(library.document("anew").manifest)


def test_a_word_that_may_go_on_is_counted_anew(library, few):
    """The last word of a file's last passage is the passage's as a whole."""
    document = put(library, "log", b"long " * 50 + b"word" * 700)
    assert len(unchanged_tables(document, 1000)) == 0
    document = put(library, "log2", b"long " * 130 + b"word" * 700)
    assert len(unchanged_tables(document, 1000)) == 1


def test_sources_end_words(library, few):
    with library.writer("two", HEADER, shard_rows=64) as writer:
        add_source(writer, "a.txt", b"word" * 150)
        add_source(writer, "b.txt", b"word" * 300)
        writer.complete(SNAPSHOT, Boundary(0, {}, 0), word_tables)
    assert len(unchanged_tables(library.document("two"), 256 + 32 + 64)) == 1
    assert unchanged_tables(library.document("two"), 256 + 32 + 63) == []


def test_text_that_is_decoded_otherwise_is_counted_anew(library, few):
    put(library, "log", FIRST_PART)
    forge(
        library.path / "documents" / "log",
        lambda data: data["sources"][0].update(encoding="cp1252"),
    )
    made = []

    def tables(document, first):
        made.append(first)
        return word_tables(document, first)

    grow(library, "log", WHOLE, tables)
    assert made == [0]


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: flip(path, 300),
        lambda path: flip(path, 3),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
    ],
    ids=["flipped", "header", "cut", "empty", "missing"],
)
def test_a_damaged_index_leaves_the_document_whole(library, harm):
    put(library, "book", WHOLE)
    path = library.path / "documents" / "book" / "words-00000.safetensors"
    harm(path)
    document = library.document("book")
    document.verify()
    assert list(damaged_tables(document)) == [path.name]
    with pytest.raises(StateMismatch):
        document.words(0)
    [found] = verify(library)
    assert (found.name, found.status) == ("book", "damaged")
    assert path.name in found.error
    assert "with --replace" in found.error
    assert [manifest.status for manifest in library.documents()] == ["complete"]


def test_a_failed_index_leaves_no_document_and_can_be_repeated(library):
    def fails(document: Document, first: int):
        yield word_table()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        put(library, "book", WHOLE, fails)
    assert library.names() == []
    put(library, "book", WHOLE)
    library.document("book").verify()
    names = {path.name for path in Path(library.path / "documents" / "book").iterdir()}
    assert names == {"manifest.json", *(s.file for s in library.document("book").manifest.shards)}
