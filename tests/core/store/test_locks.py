"""Locks: who may hold what beside whom, who waits, and what the dead leave."""

import json
import os
import socket
import threading
from contextlib import ExitStack

import pytest
from filelock import FileLock
from other_process import holding
from small_documents import lock_files

from longctx.core.common.errors import Locked
from longctx.core.store.locks import Locks

BOOK = "documents/book"


# ---- beside whom


@pytest.mark.parametrize(
    ("theirs", "mine", "doing"),
    [
        ("exclusive", "exclusive", "written"),
        ("exclusive", "shared", "written"),
        ("shared", "exclusive", "read"),
    ],
)
def test_another_process_is_refused_and_told_who_holds_it(locks, tmp_path, theirs, mine, doing):
    with holding(tmp_path, theirs, BOOK) as process:
        who = f"'book' is being {doing} by process {process.pid} on {socket.gethostname()}"
        with pytest.raises(Locked) as caught, getattr(locks, mine)(BOOK):
            pass
        assert (caught.value.what, caught.value.exit_code) == (who, 11)
        with getattr(locks, mine)("documents/other"), getattr(locks, mine)("unfinished/book"):
            pass  # others are free
    with getattr(locks, mine)(BOOK):
        pass


def test_readers_hold_it_together_and_are_all_named(locks, tmp_path):
    with (
        holding(tmp_path, "shared", BOOK) as process,
        locks.shared(BOOK),
        locks.shared(BOOK),
        pytest.raises(Locked) as caught,
        locks.exclusive(BOOK),
    ):
        pass
    assert caught.value.what.count(f"process {os.getpid()} on") == 2
    assert f"process {process.pid} on" in caught.value.what
    assert lock_files(tmp_path) == []


def test_one_process_does_not_share_what_it_holds_alone(locks, tmp_path):
    with locks.exclusive(BOOK):
        for again in (locks.exclusive, locks.shared, Locks(tmp_path).exclusive):
            with pytest.raises(Locked, match=f"written by process {os.getpid()} "), again(BOOK):
                pass


def test_a_holder_says_who_it_is(locks, tmp_path):
    with locks.shared(BOOK):
        [path] = (tmp_path / "locks" / "documents" / "book").glob("*.lock")
        assert path.name.startswith(f"{os.getpid()}-")
        said = json.loads(path.with_suffix(".json").read_bytes())
    assert said == {"pid": os.getpid(), "host": socket.gethostname(), "exclusive": False}


def test_an_error_while_it_is_held_leaves_it(locks, tmp_path):
    for kind in (locks.exclusive, locks.shared):
        with pytest.raises(ZeroDivisionError), kind(BOOK):
            raise ZeroDivisionError
    assert lock_files(tmp_path) == []


def test_it_may_be_left_by_another_thread(locks, tmp_path):
    held = ExitStack()
    held.enter_context(locks.exclusive(BOOK))
    thread = threading.Thread(target=held.close)
    thread.start()
    thread.join()
    assert lock_files(tmp_path) == []
    with locks.exclusive(BOOK):
        pass


def test_nobody_takes_one_while_another_takes_or_leaves_one(locks, tmp_path, monkeypatch):
    monkeypatch.setattr("longctx.core.store.locks._GATE_WAIT", 0)
    with FileLock(tmp_path / ".lock"):
        for kind in (locks.exclusive, locks.shared):
            with pytest.raises(TimeoutError), kind(BOOK):
                pass
    with locks.exclusive(BOOK):
        pass


# ---- waiting


def test_a_lock_that_is_left_in_time_is_taken(locks, clock):
    reader = ExitStack()
    reader.enter_context(locks.shared(BOOK))
    clock.at_sleep = lambda: clock.now >= 105 and reader.close()
    with locks.exclusive(BOOK, wait=60):
        assert 105 <= clock.now < 106


def test_waiting_ends(locks, clock):
    with locks.shared(BOOK), pytest.raises(Locked), locks.exclusive(BOOK, wait=60):
        pass
    assert 160 <= clock.now < 161
    before = clock.now
    with locks.shared(BOOK), pytest.raises(Locked), locks.exclusive(BOOK):
        pass
    assert clock.now == before  # without `wait` there is none


# ---- the dead


def test_a_killed_process_holds_nothing(locks, tmp_path):
    for theirs in ("exclusive", "shared"):
        with holding(tmp_path, theirs, BOOK) as process:
            process.kill()
            process.wait()
            assert len(lock_files(tmp_path)) == 2  # it had no time to clear up
            with locks.exclusive(BOOK):
                assert len(lock_files(tmp_path)) == 2  # now ours
            assert lock_files(tmp_path) == []


def test_of_a_dead_and_a_living_holder_only_the_living_counts(locks, tmp_path):
    with holding(tmp_path, "exclusive", BOOK) as dead:
        dead.kill()
        dead.wait()
        with (
            holding(tmp_path, "shared", BOOK) as living,
            pytest.raises(Locked) as caught,
            locks.exclusive(BOOK),
        ):
            pass
    assert f"process {living.pid} " in caught.value.what
    assert f"process {dead.pid} " not in caught.value.what


@pytest.mark.parametrize("said", [None, b"", b'{"pid": 1, "host": "elsewhere", "exclusive": true}'])
def test_files_without_a_process_lock_nothing(locks, tmp_path, said):
    place = tmp_path / "locks" / BOOK
    place.mkdir(parents=True)
    (place / "1-00000000.lock").touch()
    if said is not None:
        (place / "1-00000000.json").write_bytes(said)
    with locks.shared(BOOK):
        assert len(lock_files(tmp_path)) == 2
    assert lock_files(tmp_path) == []


@pytest.mark.parametrize("said", [None, b"{", b"[1]", b'{"pid": 3}', b"\xff"])
def test_a_living_holder_that_cannot_be_named_locks_all_the_same(locks, tmp_path, said):
    with locks.shared(BOOK):
        [path] = (tmp_path / "locks" / BOOK).glob("*.json")
        path.unlink()
        if said is not None:
            path.write_bytes(said)
        for kind in (locks.exclusive, locks.shared):
            with pytest.raises(Locked, match="an unknown host"), kind(BOOK):
                pass
    assert lock_files(tmp_path) == []
