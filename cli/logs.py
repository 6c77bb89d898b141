"""`-v` and `--log-file`: where the modules' logs go, and in which form.

Modules log to loggers of their own names, under `longctx`; handlers are added only here. A record
is always one line: control characters are escaped, so that no text can add a line or control a
terminal.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from longctx.cli import render
from longctx.cli.run import Run
from longctx.cli.text import escaped
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.outputs import Output

LEVELS = (logging.ERROR, logging.INFO, logging.DEBUG)  # on standard error, by the number of -v
OURS = "longctx"


@contextmanager
def logging_of(run: Run) -> Iterator[None]:
    """Sends logs and other libraries' warnings where a run requests them.

    Raises:
        UsageError: the log file cannot be opened.
    """
    with ExitStack() as files:
        handlers = _handlers(run, files)
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


def _handlers(run: Run, files: ExitStack) -> list[logging.Handler]:
    handlers: list[logging.Handler] = [_Notices(logging.WARNING), _Terminal(run.verbose)]
    if run.log_file is not None:
        handlers.append(_file(Output(run.log_file.expanduser(), "the log file "), files))
    if run.report is not None:
        handlers.append(_Collected(run))
    return handlers


class OneLine(logging.Formatter):
    """A record as one line; a traceback follows it, indented, line by line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without anything that a terminal or a line reader would act on."""
        line = escaped((self._fmt or "") % {**vars(record), **self._more(record)})
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {escaped(part)}" for part in trace)])

    def _more(self, record: logging.LogRecord) -> dict[str, str]:
        return {
            "message": record.getMessage(),
            "asctime": self.formatTime(record) if "%(asctime)" in (self._fmt or "") else "",
            "level": record.levelname.lower(),
        }


class _Terminal(logging.Handler):
    """Lines on the current standard error, which bars may have replaced."""

    def __init__(self, verbose: int):
        super().__init__(LEVELS[min(verbose, len(LEVELS) - 1)])
        self.setFormatter(OneLine("%(level)s: %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "notice"):
            return
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it any more
            return


class _Notices(logging.Handler):
    """Notes for people, of what they should know whether or not they asked for a log."""

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "notice"):
            render.note(record.getMessage())


def _file(output: Output, files: ExitStack) -> logging.Handler:
    try:
        out = files.enter_context(output.appending())
    except LongctxError as error:
        raise UsageError(error.what, error.why, error.remedy) from error
    return _File(output, out)


class _File(logging.Handler):
    """Lines in a file, each written at once; a failure to write is reported once."""

    def __init__(self, output: Output, out: IO[bytes]):
        super().__init__(logging.DEBUG)
        self.setFormatter(OneLine("%(asctime)s %(process)d %(level)s %(name)s: %(message)s"))
        self._output, self._out, self._ends = output, out, False

    def emit(self, record: logging.LogRecord) -> None:
        if self._ends:
            return
        rest = memoryview(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        try:
            while rest:
                rest = rest[self._out.write(rest) :]
            self._out.flush()
        except (OSError, ValueError) as error:
            self._ends = True
            why = getattr(error, "strerror", None) or str(error)
            render.problem(f"the log ends here: cannot write '{self._output.path}': {why}")


class _Collected(logging.Handler):
    """Keeps the machine-readable log records for the report (`core/common/telemetry.py`)."""

    def __init__(self, run: Run):
        super().__init__(logging.INFO)
        self._run = run

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is kept: what is machine-readable is, however much there is of it."""
        kept = hasattr(record, "facts") or hasattr(record, "stages")
        return kept or bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        self._run.facts.update(getattr(record, "facts", {}))
        for stage, seconds in getattr(record, "stages", {}).items():
            self._run.stages[stage] = round(self._run.stages.get(stage, 0) + seconds, 4)
        if record.levelno >= logging.WARNING and not hasattr(record, "notice"):
            self._run.warnings.append(record.getMessage())
