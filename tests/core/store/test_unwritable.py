"""Locks where nothing can be written: readers go without, all others are told."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from other_process import holding
from small_documents import TOKENS, begin, lock_files, write

from longctx.core.common.errors import Locked, LongctxError
from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.locks import Locks
from longctx.core.store.upkeep import sweep

BOOK = "documents/book"


def fail(code: int):
    def function(*args, **named):
        raise OSError(code, os.strerror(code))

    return function


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_library_that_has_vanished_is_not_made_again(locks, tmp_path, kind):
    folder = tmp_path / "library"
    folder.mkdir()
    with getattr(Locks(folder), kind)(BOOK):
        shutil.rmtree(folder)
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match="has gone"), getattr(Locks(folder), kind)(BOOK):
        pass
    assert not folder.exists()


def test_a_lock_is_left_also_where_its_file_cannot_be_deleted(locks, tmp_path, monkeypatch):
    with locks.exclusive(BOOK):
        monkeypatch.setattr(Confined, "unlink", fail(errno.EROFS))
    monkeypatch.undo()
    assert len(lock_files(tmp_path)) == 2
    with locks.exclusive(BOOK):
        pass
    assert lock_files(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_where_nothing_can_be_written_readers_hold_none(locks, tmp_path, monkeypatch, code):
    monkeypatch.setattr(Confined, "open", fail(code))
    with locks.shared(BOOK):
        pass
    with pytest.raises(OSError, match=os.strerror(code)), locks.exclusive(BOOK):
        pass
    monkeypatch.undo()
    with locks.exclusive(BOOK):
        pass
    assert lock_files(tmp_path) == []


def test_other_failures_are_told(locks, monkeypatch):
    monkeypatch.setattr(Confined, "open", fail(errno.EIO))
    for kind in (locks.exclusive, locks.shared):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)), kind(BOOK):
            pass


PROBE = """
import os, sys
from pathlib import Path
from longctx.core.common.errors import LongctxError
from longctx.core.store.locks import Locks
from longctx.core.store.library import Library

if os.geteuid() == 0:  # who may write everywhere
    os.setuid(65534)
library = Library.open(Path(sys.argv[1]))
with Locks(library.path).shared("documents/book"):
    print("read")
changes = [library.writer("book", {}, True).__enter__, library.writer("new", {}).__enter__]
changes += [lambda: library.remove("book"), lambda: library.rename("book", "new")]
for change in changes:
    try:
        change()
    except LongctxError as error:
        print(type(error).__name__, error.why.partition(" (")[0])
"""


@pytest.mark.usefixtures("no_sync")
@pytest.mark.skipif(os.name == "nt", reason="Windows has no read-only folders")
@pytest.mark.parametrize("used_before", [False, True])
def test_a_library_that_may_only_be_read(used_before):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        library = Library.open(Path(folder) / "library", create=True, shared=True)
        write(library)
        if not used_before:
            (library.path / ".lock").unlink()
            shutil.rmtree(library.path / "locks")
        inside = [path for path in library.path.rglob("*") if path.is_dir()]
        for path in (library.path, *inside):
            path.chmod(0o555)
        before = sorted(library.path.rglob("*"))
        command = [sys.executable, "-c", PROBE, str(library.path)]
        probe = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        assert sorted(library.path.rglob("*")) == before
        for path in (library.path, *inside):
            path.chmod(0o755)
    assert probe.stdout.splitlines() == ["read"] + ["LongctxError Permission denied"] * 4


def test_a_library_that_cannot_be_written_is_read_all_the_same(library, monkeypatch):
    write(library)

    real = Confined.handle

    def read_only(self, flags):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(self, flags)

    monkeypatch.setattr(Confined, "handle", read_only)
    with library.reading("book") as document:
        assert document.manifest.tokens == TOKENS
    with pytest.raises(LongctxError, match="cannot write"):
        library.remove("book")


# ---- a full disk


@pytest.fixture
def full_disk(monkeypatch):
    """From now on nothing can be made, written or given a name."""

    def fill() -> None:
        real = Confined.handle

        def handle(self, flags):
            if flags & os.O_CREAT and not self.exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(self, flags)

        monkeypatch.setattr(Confined, "handle", handle)
        monkeypatch.setattr(Confined, "mkdir", needs_room(Confined.mkdir))
        monkeypatch.setattr(Confined, "replace", fail(errno.ENOSPC))

    return fill


def needs_room(mkdir):
    def full(self, exist_ok=False, durable=True):
        if not self.is_dir():
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(self, exist_ok, durable)

    return full


def test_a_full_disk_can_be_emptied(library, full_disk):
    write(library)
    begin(library, "begun")
    (library.path / "documents" / "book" / "tokens-00077.safetensors").write_bytes(b"1")
    full_disk()
    swept = sweep(library)
    assert [item.path for item in swept.removed] == ["documents/book/tokens-00077.safetensors"]
    assert swept.kept == []
    for name in ("book", "begun"):
        library.remove(name)
    assert not list((library.path / "documents").iterdir())
    assert not list((library.path / "unfinished").iterdir())


def test_on_a_full_disk_too_what_is_in_use_is_left_alone(library, full_disk):
    write(library)
    with holding(library.path, "shared", BOOK):
        full_disk()
        with pytest.raises(Locked, match="being read"):
            library.remove("book")
    library.remove("book")


def test_on_a_full_disk_who_is_alone_keeps_all_others_out(locks, tmp_path, monkeypatch, full_disk):
    with locks.exclusive(BOOK):
        pass
    full_disk()
    monkeypatch.setattr("longctx.core.store.locks._GATE_WAIT", 0)
    with locks.exclusive(BOOK):
        with pytest.raises(Locked), locks.exclusive(BOOK):
            pass
        with locks.exclusive("documents/other"):  # as for a removal, which needs two
            pass
        for kind in ("shared", "exclusive"):
            with pytest.raises(TimeoutError), getattr(Locks(tmp_path), kind)(BOOK):
                pass
    monkeypatch.undo()
    with Locks(tmp_path).exclusive(BOOK):
        pass
    assert lock_files(tmp_path) == []


def test_a_lock_that_was_half_made_is_undone(locks, tmp_path, monkeypatch):
    real = Confined.open

    def no_room_for_words(self, mode="rb", buffering=-1):
        if self.name.endswith(".json"):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, mode, buffering)

    monkeypatch.setattr(Confined, "open", no_room_for_words)
    with pytest.raises(OSError, match="Input/output"), locks.exclusive(BOOK):
        pass
    assert lock_files(tmp_path) == []
