"""Ctrl-C and `kill` within a time limit, even while one computation blocks the main thread.

Python delivers a signal to the main thread only between two of its own steps, and a large matrix
product is one step. So a second thread waits too, and ends the process when the first does not. The
store, not this module, keeps the state on disk whole at every moment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from longctx.cli.at_once import end_at_once
from longctx.core.common.interrupts import ENDING

if TYPE_CHECKING:
    import socket

GRACE = 1.5  # seconds
PRESSED_AGAIN = 5.0  # seconds after which a further Ctrl-C counts as a new one
INTERRUPTED, TERMINATED = (128 + number for number in ENDING)  # exit codes
USUAL = (signal.default_int_handler, signal.SIG_DFL, end_at_once)


@contextmanager
def within(
    tell: Callable[[int], int | None],
    grace: float = GRACE,
    longer: Callable[[], float] = lambda: 0.0,
) -> Iterator[None]:
    """Ends the process if Ctrl-C or `kill` has not left this context after `grace` seconds.

    The first signal raises KeyboardInterrupt. Further ones within seconds do nothing, here and
    until the process ends, so they cannot cut short what is reported about the first.

    Args:
        tell: informs the user just before, from another thread; it is called with the exit code,
            and may return a different one.
        grace: seconds.
        longer: called after these, from another thread; how many seconds more there are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread, and this is not it
        return
    import socket  # help needs none

    with first_alone(*ENDING, end=tell):
        left = threading.Event()
        receiving, sending = socket.socketpair()
        sending.setblocking(False)
        before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
        args = receiving, left, tell, grace, longer
        watcher = threading.Thread(target=_watch, args=args, daemon=True)
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
    """The exit code of a run that was ended by this interrupt.

    Libraries raise one of their own (Ray does), which does not say of which signal it is.
    """
    if interrupt.args:
        return interrupt.args[0]
    return (_first is not None and _first.came) or INTERRUPTED


def go_on() -> None:
    """After an interruption that was dealt with: the next signal is a new one.

    Raises:
        KeyboardInterrupt: the signal was `kill`, after which nothing goes on.
    """
    if _first is not None and _first.came:
        if _first.came == TERMINATED:
            raise KeyboardInterrupt(TERMINATED)
        _first.came = None


def _watch(
    receiving: "socket.socket",
    left: threading.Event,
    tell: Callable[[int], int | None],
    grace: float,
    longer: Callable[[], float],
) -> None:
    while data := receiving.recv(16):  # the numbers of received signals
        came = [number for number in data if number in ENDING]
        if came and not left.wait(grace) and not left.wait(longer()):
            _end(128 + came[0], tell)


def _end(code: int, tell: Callable[[int], int | None]) -> None:
    """Ends the process immediately, after reporting it."""
    try:
        told = tell(code)
        code = code if told is None else told
    finally:
        os._exit(code)


@contextmanager
def first_alone(
    *numbers: int, end: Callable[[int], int | None] = lambda code: None
) -> Iterator["_First"]:
    """The first signal raises KeyboardInterrupt; further ones within seconds do nothing.

    Only signals with their usual handlers are affected: one ignored from the start, such as SIGINT
    when a script began this with `&`, stays ignored. Nested contexts, also for other signals, share
    one first signal. If the program's own start expected Ctrl-C, signals after the outermost
    context do nothing: everything is reported by then, and Python ends.

    Args:
        numbers: the signals; SIGINT if empty.
        end: as `tell` of `within`; called where a signal comes during an import, which ends the
            process. An exception could get lost in the import, or break off native code.

    Returns:
        The state of the first signal.
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
                # If a KeyboardInterrupt leaves code run from a string, as for dataclasses,
                # Python exits by that signal at the end, even if it was caught, unless other
                # such code is run.
                exec("")


@contextmanager
def _noting_dropped() -> Iterator["_First"]:
    """The outermost context's first signal, which is notified if Python drops it."""
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
    """Raises KeyboardInterrupt once, and again if a person had to wait and presses again.

    Args:
        tell_dropped: reports an error that no caller receives, such as one in `__del__`.

    Attributes:
        came: the exit code, if it was raised and not dropped.
        end: reports it where it comes during an import.
        settled: how the run ends is decided; no signal changes it.
    """

    def __init__(self, tell_dropped: Callable[[Any], object] = sys.__unraisablehook__):
        self.tell_dropped = tell_dropped
        self.came: int | None = None
        self.settled = False
        self.end: Callable[[int], int | None] = lambda code: None
        self._when = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.settled or (self.came and time.monotonic() - self._when < PRESSED_AGAIN):
            return
        self.came, self._when = 128 + number, time.monotonic()
        if _importing(frame):
            _end(self.came, self.end)
        raise KeyboardInterrupt(self.came)

    def note_dropped(self, error: Any) -> None:
        """If Python drops this one, the next signal is the first; that needs no traceback."""
        if issubclass(error.exc_type, KeyboardInterrupt):
            self.came = None
        else:
            self.tell_dropped(error)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported in this frame."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


_first: _First | None = None  # of the open contexts; a process has one set of signals
