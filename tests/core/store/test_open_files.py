"""Files that stay open: a bounded number, read by several threads, and closed in the end."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from unittest.mock import patch

import pytest

from longctx.core.store import open_files
from longctx.core.store.confined import Confined
from longctx.core.store.open_files import MOST, THREADS, OpenFile, in_threads, opened


def test_a_file_is_opened_once_and_a_successor_anew(tmp_path):
    path = Confined(tmp_path) / "a"
    path.path.write_bytes(b"first")
    assert opened(path, 1) is opened(path, 1)
    path.unlink()
    path.path.write_bytes(b"other")
    assert opened(path, 2) is not opened(path, 1)
    for stamp, expected in ((1, b"first"), (2, b"other")):
        data = bytearray(5)
        assert opened(path, stamp).read_into(0, memoryview(data)) == 5
        assert data == expected


def test_only_some_stay_open(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(open_files.os, "close", closed.append)
    for number in range(MOST + 3):
        path = Confined(tmp_path) / str(number)
        path.path.write_bytes(b"x")
        opened(path, "only some")
    assert opened.cache_info().currsize == MOST
    monkeypatch.undo()
    opened.cache_clear()
    for number in closed:
        os.close(number)
    assert len(closed) >= 3


def test_threads_read_what_they_ask_for(tmp_path):
    path = Confined(tmp_path) / "a"
    path.path.write_bytes(bytes(range(256)) * 64)
    file = OpenFile(path)

    def read(start: int) -> bool:
        data = bytearray(7)
        return file.read_into(start, memoryview(data)) == 7 and data[0] == start % 256

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(0, 8000)))
    assert file.read_into(256 * 64 - 3, memoryview(bytearray(7))) == 3


def test_threads_stay_and_a_reader_reads_by_itself():
    """What a thread reads may itself be read in parts; it must not wait for a thread then."""
    seen: list[set[str]] = []

    def inner(names: set[str]) -> None:
        names.add(threading.current_thread().name)

    def outer() -> None:
        names: set[str] = set()
        in_threads([partial(inner, names)] * 8)
        seen.append({*names, threading.current_thread().name})

    with patch("os.cpu_count", lambda: 4):
        for _ in range(20):
            in_threads([outer] * 20)
    readers = [each for each in threading.enumerate() if each.name.startswith("read-part")]
    assert 1 <= len(readers) <= THREADS
    assert len(seen) == 400
    assert all(len(names) == 1 for names in seen)


def test_the_error_is_that_of_the_earliest_call():
    def fail(number: int) -> None:
        time.sleep(0.01 * (3 - number))
        raise ValueError(number)

    made: list[int] = []
    with patch("os.cpu_count", lambda: 4), pytest.raises(ValueError, match=r"^1$"):
        in_threads([partial(made.append, 0), partial(fail, 1), partial(fail, 2)])


@pytest.mark.parametrize("before", [0, 1])
def test_where_no_thread_can_be_started_those_there_are_read(before, monkeypatch):
    """What was handed to one that never came must not be done later: memory may be another's."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    pools, start = cache(lambda process: ThreadPoolExecutor(4)), threading.Thread.start
    left = [before]

    def started(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(open_files, "_readers", pools)
    monkeypatch.setattr(threading.Thread, "start", started)
    made: list[int] = []

    def slowly(number: int) -> None:
        time.sleep(0.001)
        made.append(number)

    in_threads([partial(slowly, number) for number in range(20)])
    assert sorted(made) == [*range(20)]
    monkeypatch.setattr(threading.Thread, "start", start)
    with pools(os.getpid()) as pool:
        pool.submit(made.append, 20).result()
    assert len(made) == 21


def test_ctrl_c_waits_for_what_is_being_read_and_for_no_more(monkeypatch):
    begun, go, made = threading.Event(), threading.Event(), []

    def read() -> None:
        begun.set()
        go.wait(30)
        made.append(1)

    def interrupted(self: object) -> None:
        begun.wait(30)
        monkeypatch.undo()
        threading.Timer(0.02, go.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(open_files._Shared, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_threads([read] * 20)
    count = len(made)
    assert 1 <= count <= 4
    time.sleep(0.02)
    assert len(made) == count
