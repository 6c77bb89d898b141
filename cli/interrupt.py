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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GRACE = 1.5  # seconds
ENDING = (signal.SIGINT, signal.SIGTERM)
USUAL = (signal.default_int_handler, signal.SIG_DFL)
INTERRUPTED, TERMINATED = (128 + number for number in ENDING)  # exit codes


@contextmanager
def within(tell: Callable[[int], int | None], grace: float = GRACE) -> Iterator[None]:
    """Ends the process if Ctrl-C or `kill` has not left this context after `grace` seconds.

    The first of them raises KeyboardInterrupt. What comes after it does nothing, here and until the
    process ends: it cuts nothing short that is told of the first.

    Args:
        tell: says so to the user, from another thread, just before; is called with the exit code,
            and may give another one.
        grace: seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread, which is not ours
        return
    with _first_alone():
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
            code = 128 + came[0]
            try:
                told = tell(code)
                code = code if told is None else told
            finally:
                os._exit(code)


@contextmanager
def _first_alone() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt, others do nothing, also after this context.

    Only of signals that do what they usually do: what was to be ignored from the start, as SIGINT
    is where a script began this with `&`, stays ignored.
    """
    first = _First(sys.unraisablehook)
    before = {number: signal.getsignal(number) for number in ENDING}
    ours = [number for number, handler in before.items() if handler in USUAL]
    sys.unraisablehook = first.note_dropped
    try:
        for number in ours:
            signal.signal(number, first.handle)
        yield
    finally:
        sys.unraisablehook = first.tell_dropped
        if not first.came:
            for number in ours:
                signal.signal(number, before[number])


class _First:
    """Raises KeyboardInterrupt once.

    Args:
        tell_dropped: tells of an error that no caller gets, as one in `__del__`.

    Attributes:
        came: it was raised, and not dropped.
    """

    def __init__(self, tell_dropped: Callable[[Any], object]):
        self.tell_dropped = tell_dropped
        self.came = False

    def handle(self, number: int, frame: object) -> None:
        """What to do when a signal comes."""
        if not self.came:
            self.came = True
            raise KeyboardInterrupt(128 + number)

    def note_dropped(self, error: Any) -> None:
        """The next signal is the first, if Python drops this one; that needs no traceback."""
        if issubclass(error.exc_type, KeyboardInterrupt):
            self.came = False
        else:
            self.tell_dropped(error)
