"""Large spans are read and checked by several threads, as small ones are by one."""

import os
import threading

import pytest
import torch
from small_documents import HEADER, flip

from longctx.core.common.errors import StateMismatch
from longctx.core.store import open_files, shards
from longctx.core.store.open_files import each_part

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 bytes, so parts of 512, and threads for four parts or more."""
    monkeypatch.setattr(shards, "BLOCK", 64)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def kept(library, rows=900):
    """A document with keys of one file, and they themselves."""
    keys = torch.rand(rows, 4, 4)
    with library.writer("book", HEADER, shard_rows=1000) as writer:
        writer.append("kv", {"keys": keys})
        writer.complete({})
    return library.document("book"), keys


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("positioned", [True, False])
def test_they_are_the_bytes_and_each_block_is_checked_once(library, monkeypatch, positioned):
    if not positioned:  # as on systems without it
        monkeypatch.delattr(os, "preadv", raising=False)
    document, keys = kept(library)
    names = set()
    own = open_files.OpenFile.read_into

    def noted(self, start, data):
        names.add(threading.current_thread().name.split("_")[0])
        return own(self, start, data)

    monkeypatch.setattr(open_files.OpenFile, "read_into", noted)
    [(_, rows)] = document.rows("kv")
    assert torch.equal(rows["keys"], keys)
    assert "read-part" in names
    [(_, file)] = document._files("kv")
    assert file.checked_bytes == file.shard.size


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("first", [0, 7, 300])
def test_what_was_checked_before_is_not_checked_again(library, first):
    document, keys = kept(library)
    [(_, file)] = document._files("kv")
    assert torch.equal(file.rows("keys", first, first + 40), keys[first : first + 40])
    assert torch.equal(file.rows("keys", 0, 900), keys)
    assert file.checked_bytes == file.shard.size


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("block", [3, 20, 400, 899])
def test_the_first_damaged_block_is_named(library, block):
    document, _ = kept(library)
    [path] = (library.path / "documents" / "book").glob("kv*")
    for damaged in (block, 900):
        flip(path, 64 * damaged + 5)
    document = library.document("book")
    with pytest.raises(StateMismatch, match=rf"block {block} does not have"):
        [*document.rows("kv")]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 10), (9, 95), (20, 30), (0, 0)])
@pytest.mark.parametrize("cores", [1, 4])
def test_parts_cover_a_span_once(start, end, cores, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    parts = []
    each_part(start, end, 10, lambda begin, stop: parts.append((begin, stop)))
    found = [byte for begin, stop in sorted(parts) for byte in range(begin, stop)]
    assert found == [*range(start, end)]
    assert all(begin % 10 == 0 or begin == start for begin, _ in parts)
