"""Progress that is told now and then: as JSON for programs, or at intervals.

Knows nothing of where it is printed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.core.ingest import Progress

EVERY_MS = 200


class Lines(AbstractContextManager):
    """Objects with `total`, `cache`, `processed` and `time_ms`: the first, the last, 5 a second.

    Use it as a context, whose end tells what was not told yet.

    Args:
        what: is done.
        unit: of the counts, in the plural.
        write: prints one object.
    """

    def __init__(self, what: str, unit: str, write: Callable[[dict[str, Any]], None]):
        self.what, self._unit, self._write = what, unit, write
        self._due = 0
        self._untold: dict[str, Any] | None = None

    def tell(
        self, total: int | None, cache: int, processed: int, time_ms: int, **more: int
    ) -> None:
        """Notes how far it is.

        Args:
            total: how much there is in all; None: nobody knows.
            cache: of it, what was there before.
            processed: of it, what is done, `cache` included.
            time_ms: since it began.
            more: other counts.
        """
        told = {"total": total, "cache": cache, "processed": processed, "time_ms": time_ms, **more}
        self._untold = {"what": self.what, "unit": self._unit, **told}
        if time_ms >= self._due or processed == total:
            self._due = time_ms + EVERY_MS
            self._flush()

    def __exit__(self, *error: object) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._untold is not None:
            self._write(self._untold)
        self._untold = None


def every(period_ms: int, tell: "Callable[[Progress], None]") -> "Callable[[Progress], None]":
    """What to call with each `Progress`, of which every `period_ms` one is told."""
    due = period_ms

    def told(state: "Progress") -> None:
        nonlocal due
        if state.time_ms >= due:
            due = state.time_ms + period_ms
            tell(state)

    return told
