"""Ctrl-C within a time limit, also while one long computation holds the main thread.

Python tells the main thread of a signal only between two of its own steps, and a large matrix
product is one step. So a second thread waits along, and ends the process when the first does not.
What is on disk is whole at every moment; that is the store's affair, not this module's.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE = 1.5  # seconds
INTERRUPTED = 130  # exit code


@contextmanager
def within(tell: Callable[[], int | None], grace: float = GRACE) -> Iterator[None]:
    """Ends the process if Ctrl-C has not left this context after `grace` seconds.

    Args:
        tell: says so to the user, from another thread, just before; it may give the exit code.
        grace: seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread, which is not ours
        return
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


def _watch(
    receiving: socket.socket, left: threading.Event, tell: Callable[[], int | None], grace: float
) -> None:
    while data := receiving.recv(16):  # the numbers of the signals that came
        if signal.SIGINT in data and not left.wait(grace):
            code = None
            try:
                code = tell()
            finally:
                os._exit(INTERRUPTED if code is None else code)
