"""Files of vectors: written after the words, kept when a document grows, left alone if damaged."""

import hashlib
import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_documents import HEADER, SNAPSHOT, add_source, files_of, flip, forge
from small_passages import small_passages
from small_vectors import ENCODER, WIDTH, hashed_tables

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store import word_files
from longctx.core.store.archive import export, receive, sound
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.shards import FOR_WORDS, VECTORS, WORDS
from longctx.core.store.upkeep import sweep
from longctx.core.store.verify import verify
from longctx.core.store.word_files import damaged_tables, files_in, unchanged_tables

pytestmark = pytest.mark.usefixtures("no_sync")
SENTENCES = [f"page {i} tells of boat {i * 7919 % 997} and its salt" for i in range(90)]
FIRST_PART, WHOLE = "\n".join(SENTENCES[:60]).encode(), "\n".join(SENTENCES).encode()
BEFORE = 1100  # tokens of the boundary
ENCODED = {**HEADER, "encoder": ENCODER}
FIRST = "vectors-00000.safetensors"


@pytest.fixture
def few(monkeypatch) -> None:
    """A file has the passages of so few tokens that a short document has many."""
    small_passages(monkeypatch, 16, 256)
    monkeypatch.setattr(word_files, "_LOOK", 64)


def put(library: Library, name: str, data: bytes, vectors=hashed_tables, header=ENCODED):
    """A document of one source, with a token for every two bytes, that can be made longer."""
    boundary = Boundary(min(BEFORE, len(data) // 2), SNAPSHOT, 0)
    with library.writer(name, header, shard_rows=64) as writer:
        add_source(writer, "log.txt", data, step=999)
        writer.complete(SNAPSHOT, boundary, word_tables, vectors=vectors)
    return library.document(name)


def grow(library: Library, name: str, data: bytes, vectors=hashed_tables, header=ENCODED):
    """Makes that document longer, from its boundary."""
    with library.longer(name) as longer:
        longer.shard_rows = 64
        document = longer.document
        [source] = document.manifest.sources
        text = data[: 2 * BEFORE]
        digest = hashlib.sha256(text).hexdigest()
        known = {"size": len(text), "sha256": digest, "tokens": BEFORE, "undecodable": None}
        begun = replace(source, **known)
        writer = longer.begin(header, document.boundary(), (begun,), {})
        writer.add_bytes(data[2 * BEFORE :])
        starts = torch.arange(2 * BEFORE, len(data), 2)
        writer.append("tokens", {"ids": starts.int() * 3, "starts": starts})
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "utf-8", 0)
        boundary = Boundary(BEFORE, SNAPSHOT, 0)
        writer.complete(SNAPSHOT, boundary, word_tables, vectors=vectors)
    return library.document(name)


def folder_of(library: Library, name: str) -> Path:
    return library.path / "documents" / name


def test_a_vector_for_each_passage(library, few):
    document = put(library, "book", WHOLE)
    document.verify()
    assert document.vector_files == document.word_files > 3
    for number, made in enumerate(hashed_tables(document)):
        stored, passages = document.vectors(number), len(document.words(number)["tokens"])
        assert {name: (one.dtype.name, one.shape) for name, one in stored.items()} == {
            "vectors": ("int8", (passages, WIDTH)),
            "scales": ("float16", (passages,)),
        }
        assert all(np.array_equal(stored[name], made[name]) for name in made)
        lengths = np.linalg.norm(stored["vectors"] * stored["scales"][:, None].astype("f4"), axis=1)
        assert np.allclose(lengths, 1, atol=0.02)  # so a product with a question is a cosine
    with pytest.raises(StateMismatch, match="no file 99 of its vectors"):
        document.vectors(99)
    assert document.groups == ["tokens"]
    assert document.manifest.encoder == ENCODER
    assert [shard.rows for shard in files_in(document.manifest, VECTORS)][:1] == [0]
    again = Document(folder_of(library, "book"), needed=FOR_WORDS)
    assert again.damage == {}
    assert np.array_equal(again.vectors(1)["scales"], document.vectors(1)["scales"])


def test_without_an_encoder_there_are_none(library):
    document = put(library, "book", WHOLE, None, HEADER)
    assert (document.vector_files, document.manifest.encoder) == (0, "")
    with pytest.raises(StateMismatch, match="no file 0 of its vectors"):
        document.vectors(0)


def test_their_size_is_that_of_the_word_index(library):
    plain, document = put(library, "a", WHOLE, None, HEADER), put(library, "b", WHOLE)
    vectors = sum(shard.size for shard in files_in(document.manifest, VECTORS))
    facts = Facts.of(document.manifest)
    for told in (document.manifest, facts):
        assert told.parts["words"] == plain.manifest.parts["words"] + vectors
        assert told.parts.keys() == plain.manifest.parts.keys()
        assert told.has_vectors
    assert not Facts.of(plain.manifest).has_vectors


def test_the_files_before_the_boundary_are_those_of_the_shorter_document(library, few):
    put(library, "log", FIRST_PART)
    folder, made = folder_of(library, "log"), []
    inodes = {name: os.stat(folder / name).st_ino for name in files_of(folder)}

    def tables(document, first):
        made.append(first)
        return hashed_tables(document, first)

    longer = grow(library, "log", WHOLE, tables)
    kept = [
        shard.file
        for shard in files_in(longer.manifest, VECTORS)
        if (folder / shard.file).stat().st_ino == inodes.get(shard.file)
    ]
    assert [len(kept)] == made == [(BEFORE - 32 - 64) // 256]
    assert longer.vector_files > len(kept) + 1
    longer.verify()
    assert damaged_tables(longer, VECTORS) == {}
    put(library, "anew", WHOLE)
    now, anew = files_of(folder), files_of(folder_of(library, "anew"))
    names = [name for name in anew if name.startswith((VECTORS, WORDS))]
    assert {name: now[name] for name in names} == {name: anew[name] for name in names}
    assert longer.manifest.shards == library.document("anew").manifest.shards


@pytest.mark.parametrize("language", [False, True])
def test_vectors_are_made_anew_where_the_encoder_is_another_alone(library, few, language):
    """Not where the language is: it decides which words are counted, and no passage."""
    german = "".join(f"Seite {i} erzaehlt von dem Boot und nicht von Booten\n" for i in range(60))
    english = "".join(f"page {i} tells of the boat and not of the boats\n" for i in range(300))
    first, whole = (german, german + english) if language else (FIRST_PART.decode(), WHOLE.decode())
    before, made = put(library, "log", first.encode()), []

    def tables(document, number):
        made.append(number)
        return hashed_tables(document, number)

    header = ENCODED if language else {**HEADER, "encoder": "hashed-2"}
    longer = grow(library, "log", whole.encode(), tables, header)
    assert (longer.manifest.language != before.manifest.language) == language
    assert [number > 0 for number in made] == [language]
    anew = put(library, "anew", whole.encode(), header=header)
    assert longer.manifest.shards == anew.manifest.shards


def test_a_damaged_file_is_not_kept(library, few):
    put(library, "log", FIRST_PART)
    flip(folder_of(library, "log") / "vectors-00002.safetensors", 200)
    assert len(unchanged_tables(library.document("log"), BEFORE, VECTORS)) == 2
    longer = grow(library, "log", WHOLE)
    assert damaged_tables(longer, VECTORS) == {}
    assert longer.manifest.shards == put(library, "anew", WHOLE).manifest.shards


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
def test_damaged_vectors_leave_the_document_and_its_words_whole(library, tmp_path, harm):
    put(library, "book", WHOLE)
    harm(folder_of(library, "book") / FIRST)
    for needed in (None, FOR_WORDS):
        document = Document(folder_of(library, "book"), needed=needed)
        document.verify()
        assert document.damage == {}
        assert len(document.words(0)["tokens"])
        assert list(damaged_tables(document, VECTORS)) == [FIRST]
        assert damaged_tables(document) == {}
        with pytest.raises(StateMismatch):
            document.vectors(0)
    [found] = verify(library)
    assert (found.status, FIRST in found.error) == ("damaged", True)
    assert "word index" not in found.error
    out = io.BytesIO()
    export(document, out, manifest=sound(document))
    out.seek(0)
    receive(tmp_path / "other", out, "book.tar", "book")
    other = Library.open(tmp_path / "other").document("book")
    assert (other.vector_files, other.word_files) == (0, 1)
    assert other.manifest.encoder == ENCODER
    assert [each.status for each in verify(Library.open(tmp_path / "other"))] == ["ok"]


def test_damage_of_both_is_told_of_both(library):
    put(library, "book", WHOLE)
    for group in (WORDS, VECTORS):
        flip(folder_of(library, "book") / f"{group}-00000.safetensors", 300)
    [found] = verify(library)
    assert "its word index is damaged" in found.error
    assert "its index of vectors is damaged" in found.error


def test_export_and_import_keep_them(library, tmp_path):
    document = put(library, "book", WHOLE)
    out = io.BytesIO()
    assert sound(document) is document.manifest
    export(document, out)
    out.seek(0)
    receive(tmp_path / "other", out, "book.tar", "book")
    assert files_of(tmp_path / "other/documents/book") == files_of(folder_of(library, "book"))


def test_vectors_without_their_scales_are_refused(library):
    def short(document, first):
        for table in hashed_tables(document, first):
            yield {**table, "scales": table["scales"][:-1]}

    with pytest.raises(StateMismatch, match="number of scales"):
        put(library, "book", WHOLE, short).vectors(0)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"vectors": np.zeros((2, 4), np.int16), "scales": np.zeros(2, np.float16)}, "not those"),
        ({"vectors": np.zeros(2, np.int8), "scales": np.zeros(2, np.float16)}, "not those"),
        ({"vectors": np.zeros((2, 4), np.int8)}, "not those"),
    ],
)
def test_other_tensors_are_refused(library, table, why):
    document = put(library, "book", WHOLE, lambda *given: iter([table]))
    with pytest.raises(StateMismatch, match=why):
        document.vectors(0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.update(encoder=""), "no encoder"),
        (lambda data: data.update(encoder="a b"), "its encoder is"),
        (lambda data: data.update(encoder="x" * 101), "its encoder is"),
        (lambda data: data.update(encoder=None), "encoder"),
        (lambda data: data.pop("encoder"), "encoder"),
        (lambda data: data.update(status="reading"), "which checkpoints do not have"),
    ],
)
def test_a_manifest_that_contradicts_its_vectors_is_refused(library, change, why):
    put(library, "book", WHOLE)
    forge(folder_of(library, "book"), change)
    with pytest.raises(StateMismatch, match=why):
        library.document("book")


def test_a_checkpoint_names_none_and_remembers_the_encoder(library):
    with library.writer("other", ENCODED) as writer:
        add_source(writer, "a.txt", b"some words")
        writer.checkpoint(SNAPSHOT)
    document = library.document("other", partial=True)
    assert (document.manifest.encoder, document.vector_files) == (ENCODER, 0)


def test_what_was_stopped_while_it_was_encoded_goes_on_from_its_checkpoint(library, few):
    """The files of the part that was done are swept, and the bytes are those of one run."""

    def stopped(document, first):
        tables = hashed_tables(document, first)
        yield next(tables)
        yield next(tables)
        raise KeyboardInterrupt

    with library.writer("book", ENCODED, shard_rows=64) as writer:
        add_source(writer, "log.txt", WHOLE, step=999)
        writer.checkpoint(SNAPSHOT)
        with pytest.raises(KeyboardInterrupt):
            writer.complete(SNAPSHOT, None, word_tables, vectors=stopped)
    assert library.names() == []
    left = library.document("book", partial=True)
    assert left.manifest.tokens == -(-len(WHOLE) // 2)
    assert (library.path / "unfinished" / "book" / FIRST).exists()
    assert FIRST in {os.path.basename(one.path) for one in sweep(library, dry_run=True).removed}
    with library.writer("book", ENCODED, shard_rows=64) as writer:
        assert writer.begun is not None
        writer.complete(SNAPSHOT, None, word_tables, vectors=hashed_tables)
    with library.writer("anew", ENCODED, shard_rows=64) as writer:
        add_source(writer, "log.txt", WHOLE, step=999)
        writer.complete(SNAPSHOT, None, word_tables, vectors=hashed_tables)
    assert files_of(folder_of(library, "book")) == files_of(folder_of(library, "anew"))
