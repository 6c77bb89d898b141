"""Words that are counted while more of a document is read: the same files, and less at the end."""

import hashlib

import pytest
import torch
from small_documents import HEADER, SNAPSHOT

from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store import word_files, words_ahead
from longctx.core.store.library import Library
from longctx.core.store.word_files import damaged_words, words_of

pytestmark = pytest.mark.usefixtures("no_sync")
TEXTS = [b"pages tell of boats and salt " * 60, b"a keeper watched the rain " * 70, b"word" * 300]
FILE = 256  # tokens


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    monkeypatch.setattr("longctx.core.retrieve.word_tables.FILE_TOKENS", FILE)
    monkeypatch.setattr(word_files, "FILE_TOKENS", FILE)


class Made:
    """`word_tables`, and at which file it was asked to begin."""

    def __init__(self):
        self.first: list[int] = []

    def __call__(self, document, first=0):
        self.first.append(first)
        return word_tables(document, first)


def put(library: Library, name: str, made, every: int = 0, end: str = "utf-8"):
    """A document of all texts, with a token for every two bytes, counted after so many bytes."""
    with library.writer(name, HEADER, shard_rows=64) as writer:
        if every:
            writer.work_beside()
        for number, text in enumerate(TEXTS):
            writer.begin_source(str(number))
            for start in range(0, len(text), every or len(text)):
                part = text[start : start + (every or len(text))]
                writer.add_bytes(part)
                starts = torch.arange(start, start + len(part), 2)
                writer.append("tokens", {"ids": starts.int(), "starts": starts})
                if every:
                    writer.checkpoint(SNAPSHOT)
                    writer.count_ahead(made)
            writer.end_source(len(text), hashlib.sha256(text).hexdigest(), end, 0)
        writer.complete(SNAPSHOT, words=made)
    document = library.document(name)
    document.verify()
    assert damaged_words(document) == {}
    return [(shard.file, shard.blocks) for shard in words_of(document.manifest)]


@pytest.fixture
def library(tmp_path) -> Library:
    return Library.open(tmp_path / "library", create=True)


@pytest.mark.parametrize("every", [700, 1 << 20])
def test_the_files_are_those_that_are_made_at_the_end(library, every):
    expected = put(library, "plain", word_tables)
    made = Made()
    assert put(library, "ahead", made, every) == expected
    assert len(expected) > 8
    if every < 1000:
        assert made.first == sorted(made.first)
        assert made.first[-1] in (6, 7)  # in what has no spaces, words might go on


def test_no_more_are_kept_than_the_limit(library, monkeypatch):
    expected, made = put(library, "plain", word_tables), Made()
    monkeypatch.setattr(words_ahead, "MOST", 3)
    assert put(library, "ahead", made, 900) == expected
    assert made.first[-1] == 3


def test_of_a_source_that_is_decoded_otherwise_in_the_end_words_are_counted_anew(library):
    expected, made = put(library, "plain", word_tables, end="utf-16-le"), Made()
    assert put(library, "ahead", made, 900, end="utf-16-le") == expected
    assert made.first[-1] == 0


def test_without_other_threads_nothing_is_counted_before_the_end(library):
    made = Made()
    with library.writer("book", HEADER) as writer:
        writer.checkpoint(SNAPSHOT)
        writer.count_ahead(made)
    assert made.first == []
