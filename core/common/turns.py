"""Turns: a lock that several threads get in the order in which they came."""

import threading
from collections import deque
from contextlib import suppress

from longctx.core.common.interrupts import check

LOOK = 0.2  # seconds between checks whether the work of a thread that waits was ended


class Turns:
    """A context that one thread has at a time, again and again if it likes; the others queue."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        with self._changed:
            if self._owner == threading.get_ident():
                self._depth += 1
            else:
                self._await(1)

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._changed.notify_all()

    def give_way(self) -> None:
        """Inside the context: lets those who wait go first."""
        with self._changed:
            if self._waiting:
                depth, self._owner = self._depth, None
                self._changed.notify_all()
                self._await(depth)

    def _await(self, depth: int) -> None:
        """Waits for this thread's turn.

        Raises:
            Stopped: another thread has ended its work meanwhile.
        """
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._owner is not None or self._waiting[0] is not ticket:
                self._changed.wait(LOOK)
                check()
        finally:
            with suppress(ValueError):
                self._waiting.remove(ticket)
            self._changed.notify_all()
        self._owner, self._depth = threading.get_ident(), depth
