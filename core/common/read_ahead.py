"""Read-ahead: a thread reads what will be needed while something else loads.

Warmed files only stay in the operating system's cache: they are read again, and checked, where they
are used, and errors appear there. Imports no model library: a command begins to read before it
imports them.
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
    """One thread that runs its tasks in order and ends with the context."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._over = Event()

    def __enter__(self) -> "ReadAhead":
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Queues a task; the future has its result or its error."""
        return self._pool.submit(task)

    def warm(self, files: Iterable[T], opened: Callable[[T], BufferedReader]) -> None:
        """Reads files so that they are in memory when needed; raises nothing."""
        self._pool.submit(self._warm, [*files], opened)

    def _warm(self, files: list[T], opened: Callable[[T], BufferedReader]) -> None:
        buffer = bytearray(PIECE)
        for file in files:
            with suppress(OSError), opened(file) as stream:
                while not self._over.is_set() and stream.readinto(buffer):
                    pass
