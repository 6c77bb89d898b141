"""Progress of a long run on standard error: a line at first, then one every ten seconds."""

import time

from longctx.cli import progress
from longctx.cli.progress_lines import Lines
from longctx.cli.run import Form, current
from longctx.cli.text import duration

FIRST_S, EVERY_S = 2.0, 10.0


class Pace:
    """Reports how much is done, with rate and time left.

    A new name starts a new count. Results of an earlier run affect neither the rate nor the time
    left.

    Args:
        first_s: seconds before the first line for a name; 0: at once.
    """

    def __init__(self, first_s: float = FIRST_S) -> None:
        self._first_s = first_s
        self._what, self._due = "", 0.0
        self._began, self._before = 0.0, 0
        self._lines: Lines | None = None

    def tell(self, what: str, done: int, total: int | None, unit: str, kept: int = 0) -> None:
        """Notes that `done` of `total` are done; the first call for a name marks its start.

        Args:
            what: the name of the work.
            done, total: how many; None: unknown.
            unit: what is counted, in the plural.
            kept: how many of those done come from an earlier run.
        """
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._before, self._due = what, now, done, self._first_s
        seconds, new = now - self._began, done - self._before
        if current().form is Form.JSON:
            self._as_json(what, done, total, unit, kept, seconds)
            return
        if seconds < self._due:
            return
        self._due = seconds + EVERY_S
        rate = self._rate(seconds, new, done, total, unit)
        if kept and not new:
            rate = ", from an earlier run"
        of = "" if total is None else f" of {total:,}"
        progress.plain(f"{what}: {done:,}{of} {unit}{rate}")

    def _as_json(
        self, what: str, done: int, total: int | None, unit: str, kept: int, seconds: float
    ) -> None:
        if self._lines is None or self._lines.what != what:
            self._lines = progress.lines(what, unit)
        self._lines.tell(total, kept, done, round(1000 * seconds))

    @staticmethod
    def _rate(seconds: float, new: int, done: int, total: int | None, unit: str) -> str:
        if not new:
            return ""
        rate = f", {new / seconds:,.{0 if new >= 100 * seconds else 2}f} {unit}/s"
        return rate if total is None else f"{rate}, {duration(seconds * (total - done) / new)} left"
