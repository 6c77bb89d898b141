"""Embeddings that stay on a device between questions: here on one without memory of its own."""

import gc

import pytest
from small_documents import TOKENS, write

from longctx.core.ask import kept_rows
from longctx.core.ask.kept_rows import KeptRows
from longctx.core.kv.embeddings import GROUP
from longctx.core.store.library import Library

DEVICE = "meta"  # tensors there have shapes and no numbers


@pytest.fixture
def documents(tmp_path):
    library = Library.open(tmp_path / "library", create=True)
    for name in ("one", "two"):
        write(library, name)
    return [library.document(name) for name in ("one", "two")]


@pytest.fixture
def room(monkeypatch):
    """The device's free memory, which a test may change."""
    free = {"bytes": 1 << 30}
    monkeypatch.setattr(kept_rows, "free_memory", lambda device: free["bytes"])
    return free


def read(kept: KeptRows, document) -> list[str]:
    """The devices of a document's rows, read once."""
    found = [*kept.of(document).rows(GROUP)]
    assert sum(len(rows["vectors"]) for _, rows in found) == TOKENS
    return [rows["vectors"].device.type for _, rows in found]


def test_on_a_cpu_nothing_is_held(documents):
    assert KeptRows("cpu").of(documents[0]) is documents[0]


@pytest.mark.usefixtures("room")
def test_rows_are_read_once(documents, monkeypatch):
    kept, calls, rows = KeptRows(DEVICE), [], type(documents[0]).rows
    monkeypatch.setattr(
        type(documents[0]), "rows", lambda *given: calls.append(given[1]) or rows(*given)
    )
    kept.warm(documents[0])
    assert {*read(kept, documents[0])} == {*read(kept, documents[0])} == {DEVICE}
    assert calls == [GROUP]
    kept.drop(documents[0])
    read(kept, documents[0])
    assert calls == [GROUP, GROUP]


def test_what_has_no_room_is_read_and_not_held(documents, room):
    kept = KeptRows(DEVICE)
    room["bytes"] = 1
    assert {*read(kept, documents[0])} == {DEVICE}
    assert kept.held(documents[0]) is None


def test_the_oldest_goes_where_another_needs_its_room(documents, room, monkeypatch):
    kept = KeptRows(DEVICE)
    read(kept, documents[0])
    room["bytes"] = 1
    monkeypatch.setattr(kept_rows, "empty_cache", lambda device: room.update(bytes=1 << 30))
    read(kept, documents[1])
    assert kept.held(documents[0]) is None
    assert kept.held(documents[1])


@pytest.mark.usefixtures("room")
def test_a_document_that_nobody_has_is_held_by_nobody(documents):
    kept = KeptRows(DEVICE)
    read(kept, documents[0])
    assert len(kept._held) == 1
    documents.clear()
    gc.collect()
    assert len(kept._held) == 0
