"""What standard output is for: a command's prints, or one output sent there by `-`.

In the second case nothing else goes there: the command prints to standard error.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from longctx.cli.run import Run
from longctx.core.common.errors import UsageError
from longctx.core.common.outputs import STANDARD, standard_output_kept


@contextmanager
def of_run(run: Run) -> Iterator[None]:
    """Inside, prints go to standard error if the report or the log uses standard output.

    Raises:
        UsageError: two outputs claim it.
    """
    wanted = _wanted(run)
    if wanted:
        _require_one(wanted, run)
    with standard_output_kept() if wanted else nullcontext():
        yield


@contextmanager
def given_to(what: str, run: Run) -> Iterator[None]:
    """Inside, prints go to standard error: a command's `-` uses standard output.

    Args:
        what: the option or argument that is `-`, as given.
        run: its report and log may claim standard output too.

    Raises:
        UsageError: another output claims it too.
    """
    require_free(what, run)
    with standard_output_kept():
        yield


def require_free(what: str, run: Run) -> None:
    """Refuses a run in which another output claims what this one needs.

    Args:
        what: the option or argument, or whatever else goes there.
        run: its report and log may claim standard output.

    Raises:
        UsageError: one does.
    """
    _require_one([what, *_wanted(run)], run)


def is_terminal() -> bool:
    """Whether it is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def _wanted(run: Run) -> list[str]:
    files = {"--report -": run.report, "--log-file -": run.log_file}
    return [option for option, path in files.items() if path == STANDARD]


def _require_one(wanted: list[str], run: Run) -> None:
    wanted = [*wanted, *["--json"] * run.json]
    if len(wanted) > 1:
        why = "both want standard output"
        raise UsageError(f"{wanted[0]} and {wanted[1]}", why, "Name a file, or leave one out.")
