"""Progress reported from time to time: as JSON for programs, or at intervals.

Knows nothing of where it is printed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.core.ingest.job import Progress

EVERY_MS = 200


class Lines(AbstractContextManager["Lines"]):
    """Objects with `total`, `cache`, `processed` and `time_ms`: first, last and 5 a second.

    If the document or the work changes or the time goes back, a new series begins, and its first
    object is reported too. Use it as a context manager; its end reports the last object.

    Args:
        what: names the work.
        unit: of the counts, in the plural.
        write: prints one object.
    """

    def __init__(self, what: str, unit: str, write: Callable[[dict[str, Any]], None]):
        self.what, self._unit, self._write = what, unit, write
        self._due = self._time = 0
        self._series: tuple[Any, Any] = (None, None)
        self._untold: dict[str, Any] | None = None

    def tell(
        self, total: int | None, cache: int, processed: int, time_ms: int, **more: Any
    ) -> None:
        """Notes how far it is.

        Args:
            total: how much there is in all; None: unknown.
            cache: how much of it existed before.
            processed: how much of it is done, `cache` included.
            time_ms: since it began.
            more: other counts, and their `document`; `what` names the work where it is another.
        """
        series = more.get("document"), more.get("what")
        if time_ms < self._time or series != self._series:
            self._flush()
            self._due = 0
        self._time, self._series = time_ms, series
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


def every(
    period_ms: int, tell: "Callable[[Progress, str], None]"
) -> "Callable[[Progress, str], None]":
    """A function to call with each `Progress` and document; it reports one every `period_ms`.

    Each document's time begins at 0; the times of successive documents are added up.
    """
    due, before, last, last_document = period_ms, 0, 0, ""

    def told(state: "Progress", document: str = "") -> None:
        nonlocal due, before, last, last_document
        if state.overall:  # whose time goes on, whichever document is heard of
            if state.overall.time_ms >= due:
                due = state.overall.time_ms + period_ms
                tell(state, document)
            return
        if state.time_ms < last or document != last_document:
            before += last
        last, last_document = state.time_ms, document
        if before + last >= due:
            due = before + last + period_ms
            tell(state, document)

    return told
