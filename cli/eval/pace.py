"""How far an evaluation is, on standard error: a line after two seconds and then every ten."""

import time

from longctx.cli import progress
from longctx.cli.progress_lines import Lines
from longctx.cli.run import Form, current
from longctx.cli.text import duration

FIRST_S, EVERY_S = 2.0, 10.0


class Pace:
    """Tells how many things of how many are done, with rate and time left.

    What is counted may change: counting begins anew with another name.
    """

    def __init__(self) -> None:
        self._what, self._due = "", 0.0
        self._began, self._before = 0.0, 0
        self._lines: Lines | None = None

    def tell(self, what: str, done: int, total: int | None, unit: str) -> None:
        """Notes that `done` of `total` are done; the first time of a name, that it has begun.

        Args:
            what: names what is done.
            done, total: how many; None: nobody knows.
            unit: what they are, in the plural.
        """
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._before, self._due = what, now, done, FIRST_S
        seconds, new = now - self._began, done - self._before
        if current().form is Form.JSON:
            self._as_json(what, done, total, unit, seconds)
            return
        if seconds < self._due:
            return
        self._due = seconds + EVERY_S
        of = "" if total is None else f" of {total:,}"
        progress.plain(f"{what}: {done:,}{of} {unit}{self._rate(seconds, new, done, total, unit)}")

    def _as_json(self, what: str, done: int, total: int | None, unit: str, seconds: float) -> None:
        if self._lines is None or self._lines.what != what:
            self._lines = progress.lines(what, unit)
        self._lines.tell(total, 0, done, round(1000 * seconds))

    @staticmethod
    def _rate(seconds: float, new: int, done: int, total: int | None, unit: str) -> str:
        if not new:
            return ""
        rate = f", {new / seconds:,.{0 if new >= 100 * seconds else 2}f} {unit}/s"
        return rate if total is None else f"{rate}, {duration(seconds * (total - done) / new)} left"
