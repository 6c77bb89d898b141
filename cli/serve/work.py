"""The queue before the model: one thread answers, a bounded number of requests waits for it.

One thread, and the same one for everything: two answers at once would each take twice as long, and
every further thread that computes keeps memory of its own.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

from longctx.cli.serve.errors import Refused
from longctx.core.common.interrupts import Stopped, check, ended_by

T = TypeVar("T")

LONGEST_WAIT = 120  # seconds that a client is told to wait, at most
USUAL_S = 1.0  # seconds of one job, before any was measured
WEIGHT = 0.1  # of the latest job in the mean


class Left(Exception):
    """A job's client has left."""


Asks = Callable[[Callable[[str], None]], T]  # makes a whole, and passes its pieces on


class Work:
    """Jobs that run one after another in a thread of their own.

    Args:
        most: jobs that may wait beside the one that runs.

    Attributes:
        waiting: jobs that wait.
        running: 1 while a job runs, else 0.
        waited_s, worked_s: seconds that jobs have waited and run, in all.
        refused: jobs for which there was no room.
    """

    def __init__(self, most: int):
        self.most = most
        self.waiting = self.running = self.refused = 0
        self.waited_s = self.worked_s = 0.0
        self._usual_s = USUAL_S
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longctx-model")

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` gives.

        Where this is cancelled, since the client has left, `call` is not begun any more, or ends at
        its next step.

        Raises:
            Refused: too many wait already; 429 with the seconds after which to try again.
        """
        job = _Job(self)
        return await job.result(self._put(job, call))

    def stream(
        self,
        asks: "Asks[T]",
        on_end: Callable[[T], object] = lambda whole: None,
        on_done: Callable[[], object] = lambda: None,
    ) -> "Pieces[T]":
        """The pieces of what is made; this takes a place in the queue at once.

        Args:
            asks: is called in the queue's thread, with what is to be called with each piece, as
                `on_text` of `longctx.Document.ask`.
            on_end: gets the whole, if it is completed.
            on_done: is called when it is completed, has failed, or was taken out of the queue; in
                any thread, and before anybody sees that it ended.

        Raises:
            Refused: as `run`; `on_done` is not called then.
        """
        return Pieces(self._put, _Job(self), asks, on_end, on_done)

    def close(self) -> None:
        """Lets the thread go once its job is done; what waits is not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def retry_after(self) -> int:
        """Seconds until there should be room again."""
        return min(LONGEST_WAIT, max(1, math.ceil(self.waiting * self._usual_s / 2)))

    def _put(self, job: "_Job", call: Callable[[], T]) -> "Future[T]":
        if self.waiting + self.running > self.most:
            self.refused += 1
            seconds = self.retry_after()
            raise Refused(
                429,
                f"{self.waiting} requests wait already; try again in {seconds} seconds",
                "too_many_requests",
                headers={"Retry-After": str(seconds)},
            )
        self.waiting += 1
        return self._thread.submit(job.run, call)

    def _note(self, waited: float, worked: float | None) -> None:
        """Counts the seconds of a job; None: it never began."""
        self.waited_s += waited
        if worked is not None:
            self.worked_s += worked
            self._usual_s += WEIGHT * (worked - self._usual_s)


class _Job:
    """One job on its way through the queue; all but `run` belongs to the event loop's thread."""

    def __init__(self, work: Work):
        self._work, self._loop = work, asyncio.get_running_loop()
        self._put_at = time.monotonic()
        self.left, self._gone = threading.Event(), False

    def run(self, call: Callable[[], T]) -> T:
        """In the thread: calls, unless the client has left."""
        began = time.monotonic()
        self.tell(self._begin)
        try:
            with ended_by(self.left):
                check()
                return call()
        except Stopped:
            raise Left from None
        finally:
            self.tell(self._end, began - self._put_at, time.monotonic() - began)

    def tell(self, what: Callable[..., object], *values: object) -> None:
        """From the thread: has something called by the event loop, if that still runs."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *values)

    async def result(self, future: "Future[T]") -> T:
        """Waits for the outcome; a cancelled wait takes the job out of the queue."""
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.leave(future)

    def leave(self, future: "Future[T]") -> None:
        """The client does not want it any more; a job that has ended stays as it is."""
        self.left.set()
        if future.cancel() and not self._gone:  # it never began, and will not
            self._gone = True
            self._work.waiting -= 1
            self._work._note(time.monotonic() - self._put_at, None)

    def _begin(self) -> None:
        self._work.waiting -= 1
        self._work.running += 1

    def _end(self, waited: float, worked: float) -> None:
        self._work.running -= 1
        self._work._note(waited, worked)


class Pieces(Generic[T]):
    """A stream's pieces as they are made in the queue's thread; iterate it once.

    Leaving the iteration early (`aclose` of the iterator, or cancellation) ends the stream; so must
    whoever calls `next`, by `close`.

    Attributes:
        ended: there are no more pieces.
    """

    def __init__(
        self,
        put: Callable[[_Job, Callable[[], T]], "Future[T]"],
        job: _Job,
        asks: "Asks[T]",
        on_end: Callable[[T], object],
        on_done: Callable[[], object],
    ):
        self._job, self._on_end = job, on_end
        self.ended = False
        self._made: asyncio.Queue[str | None] = asyncio.Queue()
        self._future = put(job, lambda: asks(self._tell))
        self._future.add_done_callback(lambda _: on_done())
        self._future.add_done_callback(lambda _: job.tell(self._made.put_nowait, None))

    @property
    def answer(self) -> T:
        """The whole, once the iteration has ended."""
        return self._future.result(timeout=0)

    async def next(self, patience: float | None = None) -> str | None:
        """The next piece; None where none has come in time, or there are no more (`ended`).

        Args:
            patience: seconds; None: without end.

        Raises:
            Exception: whatever ended the stream.
        """
        try:
            async with asyncio.timeout(patience):
                piece = await self._made.get()
        except TimeoutError:
            return None
        if piece is None:
            self.ended = True
            self._on_end(self._future.result(timeout=0))  # or raises what went wrong
        return piece

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            while (piece := await self.next()) is not None:
                yield piece
        finally:
            self.close()

    def close(self) -> None:
        """Ends what makes them at its next step, or takes it out of the queue."""
        self._job.leave(self._future)

    def _tell(self, piece: str) -> None:
        self._job.tell(self._made.put_nowait, piece)
