"""Background threads: one reads ahead of the main thread, one writes behind it.

Both keep the order, hold a bounded amount, re-raise errors unchanged in the main thread, and have
ended when their context ends. Knows nothing of what is read or written.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import Empty, Queue
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
LEAST = 1 << 16  # bytes that any waiting call counts as


class _End:
    """Marks the end of the items, by an error or because there are no more."""

    def __init__(self, error: BaseException | None = None):
        self.error = error


@contextmanager
def prefetched(items: Generator[T], depth: int) -> Iterator[Iterator[T]]:
    """Runs a generator in another thread, ahead of its consumer.

    The generator must not block forever: leaving the context waits for its next item.

    Args:
        items: a generator.
        depth: items that may wait to be consumed.

    Yields:
        The same items in the same order; an error of the generator is raised at its place.
    """
    ready: Queue[T | _End] = Queue(depth)
    left = threading.Event()

    def fill() -> None:
        end = _End()
        try:
            for item in items:
                ready.put(item)
                if left.is_set():
                    break
        except BaseException as error:  # the main thread raises it
            end = _End(error)
        finally:
            items.close()
        if not left.is_set():
            ready.put(end)

    def taken() -> Iterator[T]:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error:
            raise item.error

    thread = threading.Thread(target=fill, name="longctx-ahead", daemon=True)  # see Behind
    thread.start()
    try:
        yield taken()
    finally:
        left.set()
        _empty(ready)  # makes room for the one item that the thread may be waiting to put
        thread.join()


def _empty(queue: Queue) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return


class Behind:
    """Makes calls one after another in another thread, while its context lasts.

    Once a call has raised, no later one is made, and the next use of this object raises the error.
    When the context ends, all calls have been made, even if an exception ends it: they were due
    before it.

    Args:
        depth: calls that may wait; `do` blocks while there are more. 0: each is made at once, in
            the caller's thread, and raises there.
        room: bytes; more calls may wait while what they hold is less.
    """

    def __init__(self, depth: int, room: int = 0):
        self._beside, self._depth, self._room = depth > 0, depth, room
        self._waiting: Queue[tuple[int, Callable[[], object]] | None] = Queue()
        self._turn = threading.Condition()
        self._count = self._held = 0  # calls that wait, and bytes that calls hold
        self._error: BaseException | None = None
        # A daemon, so that a second Ctrl-C ends the process while the first one waits here.
        self._thread = threading.Thread(target=self._work, name="longctx-behind", daemon=True)

    def __enter__(self) -> "Behind":
        if self._beside:
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, *error: object) -> None:
        if not self._beside:
            return
        try:
            self._waiting.put(None)
            self._thread.join()
        except BaseException as interrupted:  # a second Ctrl-C: waiting calls are dropped
            self._error = self._error or interrupted
            self._end()
            raise
        if kind is None:
            self._raise()

    def _end(self) -> None:
        """Ends the thread after its current call."""
        while self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join(0.05)

    def do(self, call: Callable[..., object], *args: Any, **named: Any) -> None:
        """Queues a call."""
        self.do_holding(0, partial(call, *args, **named))

    def do_holding(self, size: int, call: Callable[[], object]) -> None:
        """Queues a call that holds so many bytes until it has been made."""
        size = max(size, LEAST)
        if not self._beside:
            call()
            return
        self._raise()
        with self._turn:
            self._turn.wait_for(lambda: self._has_room(size))
            self._count += 1
            self._held += size
        self._waiting.put((size, call))

    def _has_room(self, size: int) -> bool:
        return self._count < self._depth or self._held + size <= self._room

    def wait(self) -> None:
        """Waits until all calls so far have been made."""
        self._waiting.join()
        self._raise()

    def _raise(self) -> None:
        if self._error:
            raise self._error

    def _work(self) -> None:
        while waited := self._waiting.get():
            size, call = waited
            self._leave(1, 0)
            try:
                if not self._error:
                    call()
            except BaseException as error:  # the main thread raises it
                self._error = error
            finally:
                del call, waited  # what it holds is given back before another one may take its room
                self._leave(0, size)
                self._waiting.task_done()

    def _leave(self, count: int, size: int) -> None:
        with self._turn:
            self._count -= count
            self._held -= size
            self._turn.notify_all()


def done(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
    """Makes a call at once, in place of `submit` of a pool; it raises here."""
    future: Future[T] = Future()
    future.set_result(call(*args, **named))
    return future
