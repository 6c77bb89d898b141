"""Ctrl-C and `kill` wait while something must not be left half done; other threads end work.

Whatever handles these signals still does, only later. Work that another thread ends stops where
Ctrl-C would stop it. Knows nothing of what is being done.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)
WATCHED = 0.1  # seconds after which who watches looks whether there is still something to end


class Stopped(KeyboardInterrupt):
    """Another thread ended this one's work; whoever handles Ctrl-C handles it in the same way."""


_ending: ContextVar[threading.Event | None] = ContextVar("ending", default=None)


@contextmanager
def ended_by(event: threading.Event) -> Iterator[None]:
    """Inside, in this thread, work stops at its next `check` once the event is set."""
    before = _ending.set(event)
    try:
        yield
    finally:
        _ending.reset(before)


@contextmanager
def at_end(act: Callable[[], object]) -> Iterator[None]:
    """Inside, `act` is called, by a thread of its own, once another thread ends this one's work.

    For work that waits for what has no `check`, such as a connection.
    """
    event, done = _ending.get(), threading.Event()
    if event is None:
        yield
        return

    def watch() -> None:
        while not done.is_set():
            if event.wait(WATCHED):
                act()
                return

    watcher = threading.Thread(target=watch, name="longctx-end", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def check() -> None:
    """Called between two steps of long work.

    Raises:
        Stopped: another thread has ended it.
    """
    event = _ending.get()
    if event is not None and event.is_set():
        raise Stopped


class Held:
    """While its context lasts, these signals wait for `let`, or for its end.

    Signals without a handler in Python keep their way, and outside the main thread none is held.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: int | None = None
        self._open = False

    def __enter__(self) -> "Held":
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type | None, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is None:  # else one error is enough
            self._deliver(None)

    @contextmanager
    def let(self) -> Iterator[None]:
        """Signals take effect in this context, also one that came before."""
        self._open = True
        try:
            self._deliver(None)
            yield
        finally:
            self._open = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            self._handlers[number](number, frame)
        elif self._came is None:
            self._came = number

    def _deliver(self, frame: FrameType | None) -> None:
        number, self._came = self._came, None
        if number is not None:
            self._handlers[number](number, frame)
