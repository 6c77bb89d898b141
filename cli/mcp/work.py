"""Work for a request in a thread beside the server, which the client can end.

Questions take turns, and so do readings, since each wants all cores; a question does not wait for
a reading.
"""

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from longctx.core.common.interrupts import ended_by

T = TypeVar("T")
EVERY = 0.25  # seconds between two reports of progress


class Work:
    """One kind of work, done for one request at a time.

    Attributes:
        ended: when the last job did (`time.monotonic`); None: there was none.
    """

    def __init__(self) -> None:
        self.ended: float | None = None
        self._limiter = CapacityLimiter(1)
        self._idle = threading.Event()
        self._idle.set()

    async def run(
        self, job: Callable[[], T], tell: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Does a job in a thread, when it is its turn.

        A request that is ended waits until its job has stopped, where Ctrl-C would stop it.

        Args:
            job: what to do.
            tell: reports progress; called several times a second, and at the end.

        Raises:
            Exception: what the job raises.
        """
        end, future = threading.Event(), Future[T]()

        # Errors are kept here: a task group would wrap them, and `Stopped`, a KeyboardInterrupt,
        # would end the server.
        def done() -> None:
            self._idle.clear()
            try:
                with ended_by(end):
                    future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.ended = time.monotonic()
                self._idle.set()

        async with anyio.create_task_group() as group:
            group.start_soon(_set_at_end, end)
            if tell is not None:
                group.start_soon(_often, tell)
            await to_thread.run_sync(done, limiter=self._limiter)
            await anyio.lowlevel.checkpoint_if_cancelled()
            group.cancel_scope.cancel()
        if tell is not None:
            await tell()
        return future.result()

    @property
    def is_idle(self) -> bool:
        """Whether no job runs."""
        return self._idle.is_set()

    def settle(self, seconds: float) -> None:
        """Waits for a job that was told to stop, at most so long."""
        self._idle.wait(seconds)


@asynccontextmanager
async def resting(
    kinds: Sequence[Work], rest: Callable[[], None], after: float
) -> AsyncIterator[None]:
    """Inside, something is done once whenever nothing was for some time.

    Args:
        kinds: what counts.
        rest: what is done, in a thread.
        after: seconds.
    """

    async def watch() -> None:
        rested = time.monotonic()
        while True:
            await anyio.sleep(after / 4)
            last = max((work.ended or 0 for work in kinds), default=0)
            idle = all(work.is_idle for work in kinds)
            if idle and last > rested and time.monotonic() - last > after:
                rested = time.monotonic()
                await to_thread.run_sync(rest)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        yield
        group.cancel_scope.cancel()


async def _set_at_end(event: threading.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        event.set()


async def _often(tell: Callable[[], Awaitable[None]]) -> None:
    while True:
        await anyio.sleep(EVERY)
        await tell()
