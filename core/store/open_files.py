"""Files that stay open between reads: the most recently used of the process.

A decode step reads hundreds of small runs; where files are slow to reach, as in containers and on
networks, opening one takes longer than reading it.
"""

import io
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import pairwise
from operator import itemgetter

from longctx.core.store.confined import Confined

try:
    import resource
except ImportError:  # Windows
    resource = None

FEW, MANY = 64, 512  # files that stay open: at least, and at most
THREADS = 8  # that read one large span, or many small ones


def _most() -> int:
    """A quarter of the files that this process may have open, between FEW and MANY."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource else 0
    return MANY if allowed < 0 else max(FEW, min(MANY, allowed // 4))  # below 0: no limit


MOST = _most()  # a document of a million tokens may have some hundreds


class OpenFile:
    """A file open for reading; it is closed when nothing refers to it any more.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """

    def __init__(self, path: Confined):
        number = path.handle(os.O_RDONLY)
        weakref.finalize(self, os.close, number)
        self._file = io.FileIO(number, closefd=False)
        self._turn = threading.Lock()  # a read moves the file position, which all threads share

    def status(self) -> os.stat_result:
        """The status of the open file, whatever its path names now."""
        return os.fstat(self._file.fileno())

    def read_into(self, start: int, data: memoryview) -> int:
        """Fills `data` from byte `start` on; returns the number of bytes read.

        Raises:
            OSError: they cannot be read.
        """
        done = 0
        if hasattr(os, "preadv"):  # it moves no position, so threads can read at once
            number = self._file.fileno()
            while done < len(data) and (part := os.preadv(number, [data[done:]], start + done)):
                done += part
            return done
        with self._turn:
            self._file.seek(start)
            # One call reads 2 GiB at most.
            while done < len(data) and (part := self._file.readinto(data[done:])):
                done += part
        return done


def each_part(start: int, end: int, size: int, work: Callable[[int, int], None]) -> None:
    """Calls `work` with the begin and end of each part of [start, end), on several threads.

    Args:
        start, end: a span of bytes; parts are cut at multiples of `size`.
        size: of a part; up to two are done in this thread.
        work: what is done with one; the error of the earliest part that fails is raised.
    """
    cuts = [start, *range((start // size + 1) * size, end, size), end]
    parts = [*pairwise(cuts)]
    in_threads([partial(work, *part) for part in parts], 2)


def in_threads(calls: Sequence[Callable[[], object]], each: int = 1) -> None:
    """Makes calls that read or write, on several threads if there are some for each of two.

    Args:
        calls: begun in this order; the error of the earliest that fails is raised.
        each: calls that are worth a thread; a single thread's are made in this one.
    """
    threads = min(THREADS, len(calls) // each, os.cpu_count() or 1)
    if threads < 2 or getattr(_own, "reads", False):  # a reader would wait for itself
        for call in calls:
            call()
        return
    shared = _Shared(calls)
    try:
        try:
            for _ in range(threads):
                _readers(os.getpid()).submit(shared.work)
        except RuntimeError:  # no more threads can be started
            shared.work()
        shared.wait()
    finally:  # after Ctrl-C too, nobody writes any more into what the caller gave
        shared.drop()
        shared.wait()
    if shared.failed:
        raise min(shared.failed, key=itemgetter(0))[1]


class _Shared:
    """Calls that several threads make between them; none is begun after one that failed.

    Args:
        calls: begun in this order.

    Attributes:
        failed: place and error of those that failed.
    """

    def __init__(self, calls: Sequence[Callable[[], object]]):
        self._waiting = deque(enumerate(calls))
        self._changed, self._working = threading.Condition(), 0
        self.failed: list[tuple[int, BaseException]] = []

    def work(self) -> None:
        """Makes calls until none waits, in any thread, as often as one likes."""
        with self._changed:
            self._working += 1
        _own.reads = True
        try:
            while self._waiting:
                self._next()
        finally:
            _own.reads = False
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _next(self) -> None:
        with suppress(IndexError):  # another thread has taken the last one
            place, call = self._waiting.popleft()
            try:
                call()
            except BaseException as error:  # the caller raises it
                self.failed.append((place, error))
                self.drop()

    def drop(self) -> None:
        """Those that wait are not made."""
        self._waiting.clear()

    def wait(self) -> None:
        """Until none waits and none is being made."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._working)


_own = threading.local()


@cache
def _readers(process: int) -> ThreadPoolExecutor:
    """A process's threads that read. They stay: starting one takes as long as reading a MiB."""
    return ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "read-part")


@lru_cache(MOST)
def opened(path: Confined, stamp: Hashable) -> OpenFile:
    """The file at `path`, opened once.

    Args:
        path: the file.
        stamp: tells it from another file that takes its name later.

    Raises:
        OSError: it cannot be opened.
    """
    return OpenFile(path)
