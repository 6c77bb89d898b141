"""Durable writing: what is synced when, and what a full disk leaves."""

import errno
import os
import threading
from pathlib import Path

import pytest
import torch
from small_documents import FIRST, add_source, files_of, stopped_writer, write
from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import LongctxError
from longctx.core.store import filling
from longctx.core.store.durable import storing, write_file
from longctx.core.store.shards import BLOCK

pytestmark = pytest.mark.usefixtures("no_sync")


def test_a_file_is_synced_before_it_has_its_name_and_the_manifest_is_last(library, monkeypatch):
    events = []
    real = os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))

    def replace(source, target, **folders):
        assert events[-1] == os.stat(source, dir_fd=folders["src_dir_fd"]).st_ino
        events.append(Path(target).name)
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", replace)
    with stopped_writer(library) as writer:
        add_source(writer, "one.txt", FIRST)
        writer.checkpoint({})
        named = [event for event in events if isinstance(event, str)]
    assert (len(named), named[0], named[-1]) == (5 + 1, "manifest.json", "manifest.json")
    assert isinstance(events[-1], int)  # the folder


def test_the_folder_that_holds_all_documents_is_synced_where_it_stands(library, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    write(library)
    assert (library.path / "documents").stat().st_ino in synced
    assert library.path.stat().st_ino in synced


def no_space(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("blocks", [0, 2.5, 4, 13.5])
def test_threads_write_large_files_alone(tmp_path, monkeypatch, blocks):
    """Without memory, a thread never says that it has begun, and is waited for without end."""
    monkeypatch.setattr(filling, "RUN_BLOCKS", 4)
    monkeypatch.setattr(filling, "AT_ONCE", 3)
    begun, taken = [], []
    monkeypatch.setattr(os, "fdatasync", taken.append)
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (begun.append(self), start(self)))
    data = b"x" * int(blocks * BLOCK)
    sums = write_file(tmp_path, "file", len(data), [data[:7], data[7:]])
    assert (tmp_path / "file").read_bytes() == data
    parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert sums == [xxh3_128_hexdigest(part) for part in parts]
    assert bool(begun) == (blocks > 4)
    assert bool(taken) == (blocks > 12)


def test_what_the_disk_could_not_take_is_an_error(tmp_path, monkeypatch):
    """The system tells it once, to the thread: the last sync succeeds."""
    monkeypatch.setattr(filling, "AT_ONCE", 1)
    monkeypatch.setattr(filling, "RUN_BLOCKS", 1)
    monkeypatch.setattr(os, "fdatasync", no_space)
    with pytest.raises(LongctxError, match="No space left"):
        write_file(tmp_path, "file", 2 * BLOCK, [b"x" * 2 * BLOCK])
    assert not list(tmp_path.iterdir())


def test_without_positions_files_are_written_in_turn(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pwrite")
    monkeypatch.setattr(filling, "RUN_BLOCKS", 1)
    data = os.urandom(5 * BLOCK + 3)
    write_file(tmp_path, "file", len(data), [data])
    assert (tmp_path / "file").read_bytes() == data


def test_where_nothing_may_be_written_room_is_not_the_matter(tmp_path):
    with pytest.raises(LongctxError) as caught, storing(tmp_path / "x"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert caught.value.why == "Permission denied"
    assert "Allow writing there, or" in caught.value.remedy
    assert "Make room" not in caught.value.remedy


@pytest.mark.parametrize("place", ["os.fsync", "os.pwrite"])
def test_a_full_disk_is_an_error_with_figures_and_loses_nothing(library, monkeypatch, place):
    write(library)
    before = files_of(library.path / "documents" / "book")
    with stopped_writer(library, replace=True, shard_rows=8) as writer:
        monkeypatch.setattr(place, no_space)
        figures = r"No space left.*232 bytes needed, [\d,]+ bytes free"
        with pytest.raises(LongctxError, match=figures):
            writer.append("kv", {"keys": torch.zeros(8, 5)})
    monkeypatch.undo()
    assert files_of(library.path / "documents" / "book") == before
    assert list(files_of(library.path / "unfinished" / "book")) == ["manifest.json"]
    write(library, replace=True)
