"""What a document gives back: its rows, its snapshot, its text, and where a token stands in it."""

import hashlib
import random

import numpy as np
import pytest
import torch
from small_documents import (
    FIRST,
    HEADER,
    MODEL,
    SECOND,
    SNAPSHOT,
    TOKENS,
    add_source,
    embeddings,
    flip,
    write,
)
from small_words import store_words

from longctx.core.common.errors import StateMismatch
from longctx.core.store.open_files import opened

pytestmark = pytest.mark.usefixtures("no_sync")


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
        writer.end_source(len(data), hashlib.sha256(data).hexdigest(), "cp1252", 0)
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


def test_an_open_document_does_not_read_the_files_of_its_successor(library):
    write(library)
    document = library.document("book")
    rows = torch.tensor([0])
    before = document.take("tokens", rows)
    with library.writer("book", HEADER, replace=True, shard_rows=4) as writer:
        add_source(writer, "two.txt", SECOND + FIRST)
        writer.complete(SNAPSHOT)
    again = document.take("tokens", rows)  # from files that stay open
    assert all(torch.equal(again[name], before[name]) for name in before)
    opened.cache_clear()  # as when a document has more files than that
    with pytest.raises(StateMismatch, match="replaced meanwhile"):
        document.take("tokens", rows)


def test_rows_as_numpy_are_those_of_torch(library, small):
    write(library)
    document, expected = library.document("book"), embeddings(TOKENS)
    for rows in ([0], [3, 4], [0, 5, 6, 7, 8, 21], [2, 2, 9], list(range(TOKENS)), []):
        rows = np.array(rows, np.int64)
        for name, tensor in expected.items():
            taken = document.array_take("embeddings", rows, name)
            assert torch.equal(torch.from_numpy(taken), tensor[rows])
    for rows in ([4, 3], [-1], [TOKENS]):
        with pytest.raises(ValueError, match="must ascend"):
            document.array_take("embeddings", np.array(rows), "scales")


def test_words_are_no_rows_and_nothing_that_a_question_reads_whole(library):
    write(library)
    before = library.document("book")
    files = store_words(before.folder)
    document = library.document("book")
    assert (before.word_files, document.word_files) == (0, len(files))
    assert document.groups == before.groups == ["embeddings", "tokens"]
    assert document.read_whole() == before.read_whole()
    assert [shard.rows for shard in files] == [0]
    checked = document.checked_bytes
    tables = document.words(0)
    assert document.checked_bytes - checked == files[0].size
    assert all(isinstance(table, np.ndarray) for table in tables.values())
    assert sum(table.nbytes for table in tables.values()) < files[0].size
    for number in (1, 7):
        with pytest.raises(StateMismatch, match=f"no file {number}"):
            document.words(number)


@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_a_document_without_its_words_is_whole(library, harm):
    folder = library.path / "documents" / "book"
    write(library)
    path = folder / store_words(folder)[0].file
    if harm == "missing":
        path.unlink()
    else:
        flip(path, -1)
    document = library.document("book")
    document.verify()
    assert document.word_files == 1
    with pytest.raises(StateMismatch, match="words-00000"):
        document.words(0)
