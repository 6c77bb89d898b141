"""Progress of a reading, from the thread that reads to the client."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longctx.core.ingest.job import Progress

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Reported:
    """The latest progress, told when it is new.

    Args:
        report: tells the client how much is done, of how much, and a message.
    """

    def __init__(self, report: Report):
        self._report = report
        self._latest: Progress | None = None
        self._told = -1

    def note(self, state: "Progress", *_: object) -> None:
        """Notes it, from any thread; not that of words and vectors, which counts by itself."""
        if not state.phase:
            self._latest = state

    async def tell(self) -> None:
        """Tells it, unless no more is done than was told."""
        state = self._latest
        if state is not None and state.processed > self._told:
            self._told = state.processed
            await self._report(state.processed, state.total, f"{state.tokens:,} tokens read")
