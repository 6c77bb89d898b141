"""How much a server logs: a flood of requests, or of their failures, fills no disk."""

import logging
import threading
import time
from dataclasses import dataclass, field

BURST = 100  # lines of one kind at once, those of tracebacks among them
RATE = 1.0  # lines a second of one kind after these
REPORT_S = 10  # seconds between two reports of what was left out
Kind = tuple[str, str, int, type[BaseException] | None]
_log = logging.getLogger(__name__)


@dataclass
class _Budget:
    """What may be logged of one kind.

    Attributes:
        lines: that may still be logged; below 0 after a long traceback.
        since: when `lines` was right, in seconds.
        left_out: records since the last report.
        example: the latest of them.
        level: its level.
    """

    lines: float = BURST
    since: float = field(default_factory=time.monotonic)
    left_out: int = 0
    example: str = ""
    level: int = logging.WARNING

    def takes(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; one that is not is counted."""
        now = time.monotonic()
        self.lines = min(BURST, self.lines + RATE * (now - self.since))
        self.since = now
        if self.lines < 1:
            self.left_out += 1
            self.example, self.level = record.getMessage()[:200], record.levelno
            return False
        self.lines -= _lines_of(record)
        return True


class LogLimit(logging.Filter):
    """Limits the lines a second of each kind in all logs, while this is entered.

    A kind is a statement that logs, with its logger and the class of the error that it logs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._budgets: dict[Kind, _Budget] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "LogLimit":
        self._handlers = [*logging.getLogger().handlers]
        for handler in self._handlers:
            handler.addFilter(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self.report()
        for handler in self._handlers:
            handler.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; decided once, for all handlers."""
        kept = getattr(record, "kept", None)
        if kept is None:
            error = record.exc_info[0] if record.exc_info else None
            kind = (record.name, record.pathname, record.lineno, error)
            with self._lock:
                kept = self._budgets.setdefault(kind, _Budget()).takes(record)
            record.__dict__["kept"] = kept
        return kept

    def report(self) -> None:
        """Logs how many records were left out since the last report, for each kind."""
        with self._lock:
            found = [budget for budget in self._budgets.values() if budget.left_out]
            reports = [(each.level, each.left_out, each.example) for each in found]
            for budget in found:
                budget.left_out = 0
        for level, count, example in reports:
            _log.log(level, "%d more left out like: %s", count, example, extra={"kept": True})


def _lines_of(record: logging.LogRecord) -> int:
    if not record.exc_info:
        return 1
    return 1 + logging.Formatter().formatException(record.exc_info).count("\n") + 1
