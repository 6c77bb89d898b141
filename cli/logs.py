"""`-v` and `--log-file`: where what the modules log goes, and in which form.

Modules log to loggers of their own names, under `longctx`. Here alone are they given somewhere to
go. A record is one line whatever is in it: control characters are escaped, so that no text can make
a line of its own or steer a terminal.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longctx.cli.run import Run
from longctx.cli.text import escaped
from longctx.core.errors import UsageError

LEVELS = (logging.ERROR, logging.INFO, logging.DEBUG)  # on standard error, by how often -v stands
OURS = "longctx"


@contextmanager
def logging_of(run: Run) -> Iterator[None]:
    """Sends what is logged, and what other libraries warn of, where a run wants it.

    Raises:
        UsageError: the log file cannot be opened.
    """
    handlers = _handlers(run)
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = ours.level
    ours.setLevel(min(handler.level for handler in handlers))
    for handler in handlers:
        root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        ours.setLevel(before)


def _handlers(run: Run) -> list[logging.Handler]:
    handlers: list[logging.Handler] = [_Terminal(run.verbose)]
    if run.log_file is not None:
        handlers.append(_file(run.log_file.expanduser()))
    if run.report is not None:
        handlers.append(_Collected(run))
    return handlers


class OneLine(logging.Formatter):
    """A record as one line; a traceback follows it, indented, line by line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with nothing in it that a terminal or a reader of lines would obey."""
        line = escaped(self._fmt % {**vars(record), **self._more(record)})
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {escaped(part)}" for part in trace)])

    def _more(self, record: logging.LogRecord) -> dict[str, str]:
        return {
            "message": record.getMessage(),
            "asctime": self.formatTime(record) if "%(asctime)" in self._fmt else "",
            "level": record.levelname.lower(),
        }


class _Terminal(logging.Handler):
    """Lines on what standard error is at the moment: bars may have taken its place."""

    def __init__(self, verbose: int):
        super().__init__(LEVELS[min(verbose, len(LEVELS) - 1)])
        self.setFormatter(OneLine("%(level)s: %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it any more
            return


def _file(path: Path) -> logging.Handler:
    try:
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot write the log file '{path}'", why, "Name another.") from error
    handler.setLevel(logging.DEBUG)
    handler.setFormatter(OneLine("%(asctime)s %(process)d %(level)s %(name)s: %(message)s"))
    return handler


class _Collected(logging.Handler):
    """Keeps for the report what is logged in a form for programs (`core/stages.py`)."""

    def __init__(self, run: Run):
        super().__init__(logging.INFO)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.facts.update(getattr(record, "facts", {}))
        for stage, seconds in getattr(record, "stages", {}).items():
            self._run.stages[stage] = round(self._run.stages.get(stage, 0) + seconds, 4)
        if record.levelno >= logging.WARNING:
            self._run.warnings.append(record.getMessage())
