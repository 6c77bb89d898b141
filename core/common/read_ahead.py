"""Read-ahead: a thread reads what will be needed while something else loads.

What is only warmed stays in the operating system's cache: it is read again, and checked, where it
is used, and an error shows itself there. Imports no model library: a command begins to read
before it imports them.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader
from threading import Event
from typing import TypeVar

PIECE = 8 << 20  # bytes read at a time; the end of the context waits for one

T = TypeVar("T")


class ReadAhead:
    """One thread that does its tasks in order, and is over when the context is."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._over = Event()

    def __enter__(self) -> "ReadAhead":
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Does a task; its result, or what it raised, is the future's."""
        return self._pool.submit(task)

    def warm(self, files: Iterable[T], opened: Callable[[T], BufferedReader]) -> None:
        """Reads files so that they are in memory when they are needed; nothing is raised."""
        self._pool.submit(self._warm, [*files], opened)

    def _warm(self, files: list[T], opened: Callable[[T], BufferedReader]) -> None:
        buffer = bytearray(PIECE)
        for file in files:
            with suppress(OSError), opened(file) as stream:
                while not self._over.is_set() and stream.readinto(buffer):
                    pass
