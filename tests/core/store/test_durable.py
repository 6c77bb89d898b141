"""Durable writing: what is synced when, and what a full disk leaves."""

import errno
import os
import threading
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from small_documents import FIRST, add_source, files_of, stopped_writer, write
from xxhash import xxh3_128_hexdigest

from longctx.core.common.errors import LongctxError
from longctx.core.store.durable import write_file
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


def no_space_in_rust(*args):
    raise SafetensorError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("blocks", [0, 2.5])
def test_a_thread_syncs_large_files_alone(tmp_path, monkeypatch, blocks):
    """Without memory, a thread never says that it has begun, and is waited for without end."""
    begun = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (begun.append(self), start(self)))
    data = b"x" * int(blocks * BLOCK)
    sums = write_file(tmp_path, "file", len(data), lambda path: path.write_bytes(data))
    assert (tmp_path / "file").read_bytes() == data
    parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert sums == [xxh3_128_hexdigest(part) for part in parts]
    assert bool(begun) == bool(blocks)


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
