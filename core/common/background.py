"""Background threads: one reads ahead of the main thread, one writes behind it.

Both keep the order, hold a bounded amount, re-raise errors unchanged in the main thread, and have
ended when their context ends. Knows nothing of what is read or written.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, Full, Queue
from typing import Any, TypeVar

T = TypeVar("T")


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
    """

    def __init__(self, depth: int):
        self._beside = depth > 0
        self._waiting: Queue[Callable[[], object] | None] = Queue(depth)
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
            with suppress(Full):
                self._waiting.put_nowait(None)
            self._thread.join(0.05)

    def do(self, call: Callable[..., object], *args: Any, **named: Any) -> None:
        """Queues a call."""
        if not self._beside:
            call(*args, **named)
            return
        self._raise()
        self._waiting.put(partial(call, *args, **named))

    def wait(self) -> None:
        """Waits until all calls so far have been made."""
        self._waiting.join()
        self._raise()

    def _raise(self) -> None:
        if self._error:
            raise self._error

    def _work(self) -> None:
        while call := self._waiting.get():
            try:
                if not self._error:
                    call()
            except BaseException as error:  # the main thread raises it
                self._error = error
            finally:
                self._waiting.task_done()
