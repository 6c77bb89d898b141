"""Ctrl-C and `kill` within a time limit, also while one long computation holds the main thread.

Python tells the main thread of a signal only between two of its own steps, and a large matrix
product is one step. So a second thread waits along, and ends the process when the first does not.
What is on disk is whole at every moment; that is the store's affair, not this module's.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from longctx.cli.at_once import end_at_once

GRACE = 1.5  # seconds
PRESSED_AGAIN = 5.0  # seconds after which a further Ctrl-C is meant as a new one
ENDING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED, TERMINATED = (128 + number for number in ENDING)  # exit codes
USUAL = (signal.default_int_handler, signal.SIG_DFL, end_at_once)


@contextmanager
def within(tell: Callable[[int], int | None], grace: float = GRACE) -> Iterator[None]:
    """Ends the process if Ctrl-C or `kill` has not left this context after `grace` seconds.

    The first of them raises KeyboardInterrupt. What comes after it within seconds does nothing,
    here and until the process ends: it cuts nothing short that is told of the first.

    Args:
        tell: says so to the user, from another thread, just before; is called with the exit code,
            and may give another one.
        grace: seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread, which is not ours
        return
    with first_alone(*ENDING, end=tell):
        left = threading.Event()
        receiving, sending = socket.socketpair()
        sending.setblocking(False)
        before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
        watcher = threading.Thread(target=_watch, args=(receiving, left, tell, grace), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            left.set()
            sending.close()
            watcher.join()
            receiving.close()


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a run that this ended."""
    return interrupt.args[0] if interrupt.args else INTERRUPTED


def _watch(
    receiving: socket.socket,
    left: threading.Event,
    tell: Callable[[int], int | None],
    grace: float,
) -> None:
    while data := receiving.recv(16):  # the numbers of the signals that came
        came = [number for number in data if number in ENDING]
        if came and not left.wait(grace):
            _end(128 + came[0], tell)


def _end(code: int, tell: Callable[[int], int | None]) -> None:
    """Ends the process here and now, after it was told."""
    try:
        told = tell(code)
        code = code if told is None else told
    finally:
        os._exit(code)


@contextmanager
def first_alone(
    *numbers: int, end: Callable[[int], int | None] = lambda code: None
) -> Iterator["_First"]:
    """The first signal raises KeyboardInterrupt; those of the next seconds do nothing.

    Only of signals that do what they usually do: what was to be ignored from the start, as SIGINT
    is where a script began this with `&`, stays ignored. Contexts in one another, of other signals
    too, have one first signal. Where the program's own start expected Ctrl-C, nothing that comes
    after the outermost context does anything: all is told then, and Python ends.

    Args:
        numbers: the signals; without one, SIGINT.
        end: as `tell` of `within`; is called where the signal comes in an import: the process ends
            there. An exception could be lost in it, or end it in the midst of native code.

    Returns:
        What is known of the first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _First()
        return
    before = {number: signal.getsignal(number) for number in numbers or (signal.SIGINT,)}
    ours = {number: handler for number, handler in before.items() if handler in USUAL}
    with _noting_dropped() as first:
        outer, first.end = first.end, end
        try:
            for number in ours:
                signal.signal(number, first.handle)
            yield first
        finally:
            first.end = outer
            for number, handler in ours.items():
                if handler is end_at_once:
                    signal.signal(number, signal.SIG_IGN)
                elif not first.came:
                    signal.signal(number, handler)
            if first.came:
                # Where a KeyboardInterrupt leaves code that was run from a text, as dataclasses
                # are made, Python ends by that signal in the end, whoever caught it; until the
                # next such code is run.
                exec("")


@contextmanager
def _noting_dropped() -> Iterator["_First"]:
    """The outermost context's first signal, which hears where Python drops it."""
    global _first
    if _first is not None:
        yield _first
        return
    _first = _First(sys.unraisablehook)
    sys.unraisablehook = _first.note_dropped
    try:
        yield _first
    finally:
        sys.unraisablehook = _first.tell_dropped
        _first = None


class _First:
    """Raises KeyboardInterrupt once, and again where a person had to wait and presses again.

    Args:
        tell_dropped: tells of an error that no caller gets, as one in `__del__`.

    Attributes:
        came: the exit code, if it was raised, and not dropped.
        end: tells of it where it comes in an import.
        settled: how the run ends is decided: no signal changes it.
    """

    def __init__(self, tell_dropped: Callable[[Any], object] = sys.__unraisablehook__):
        self.tell_dropped = tell_dropped
        self.came: int | None = None
        self.settled = False
        self.end: Callable[[int], int | None] = lambda code: None
        self._when = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """What to do when a signal comes."""
        if self.settled or (self.came and time.monotonic() - self._when < PRESSED_AGAIN):
            return
        self.came, self._when = 128 + number, time.monotonic()
        if _importing(frame):
            _end(self.came, self.end)
        raise KeyboardInterrupt(self.came)

    def note_dropped(self, error: Any) -> None:
        """The next signal is the first, if Python drops this one; that needs no traceback."""
        if issubclass(error.exc_type, KeyboardInterrupt):
            self.came = None
        else:
            self.tell_dropped(error)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported there."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


_first: _First | None = None  # of the contexts that are open; a process has one set of signals
