"""The frame of every command: options and config file before it, errors and exit codes after it.

Only here does an error become a message on standard error and an exit code, and is the report of a
run written. Knows no command by name.
"""

import copy
import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from longctx.cli import (
    elsewhere,
    everywhere,
    invalid,
    plain_values,
    progress,
    render,
    report,
    run,
    settings,
    standard_output,
)
from longctx.cli.interrupt import INTERRUPTED, TERMINATED, code_of, first_alone
from longctx.cli.logs import logging_of
from longctx.cli.run import Run
from longctx.core.common import distribution
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import is_memory

PROGRAM = "longctx"
NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)  # never a valid path
_log = logging.getLogger(__name__)


class Interrupted(LongctxError):
    """The user pressed Ctrl-C."""

    exit_code = INTERRUPTED


class Terminated(Interrupted):
    """The process was asked to end, for example by `kill` or a service manager."""

    exit_code = TERMINATED


def interrupted(code: int, remedy: str = "") -> Interrupted:
    """The error of a run that a signal ended.

    Args:
        code: the exit code.
        remedy: how to resume.
    """
    if code == TERMINATED:
        return Terminated("terminated", "", remedy)
    return Interrupted("interrupted", "", remedy)


class Command(TyperCommand):
    """One command; its run is logged and reported as the options say."""

    def get_help_option(self, ctx: Any) -> Any:
        """Its `--help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            plain_values.spare(option)
        return option

    def invoke(self, ctx: Any) -> Any:
        """Runs the command.

        Raises:
            UsageError: the log or report cannot be written, or two outputs claim standard output.
        """
        current: Run = ctx.find_object(Run)
        current.command = ctx.command_path.partition(" ")[2]
        current.arguments = dict(ctx.params)
        if current.report is not None:
            report.output(current.report).require_writable()
        with standard_output.of_run(current), logging_of(current):
            if _log.isEnabledFor(logging.INFO):  # looking up a version takes a while
                _log.info("longctx %s: %s", distribution.version(), current.command)
            try:
                code = super().invoke(ctx)
            except BaseException as error:  # Ctrl-C too: the log and the report say how it ended
                _log_end(current, error)
                raise
            _log_end(current, None)
        return code


class Program(TyperGroup):
    """The whole command line, as called by the console script and Typer's test runner."""

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        own: list[Any] = [option for option in self.params if option.name in everywhere.NAMES]
        for option in own:
            everywhere.spare_pydantic(option)
        shared = [copy.copy(option) for option in own]
        for option in shared:
            option.hidden = True  # the program's own help lists them
        for command in _leaves(self):
            for option in command.params:
                plain_values.spare(option)
            command.params += shared

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *more: Any,
        **extra: Any,
    ) -> None:
        """Runs a command and exits with its exit code."""
        given = sys.argv[1:] if args is None else [*args]
        if given[:1] == ["help"]:  # as `longctx ask --help`
            args = given = [*given[1:], "--help"]
        for option in self.params:  # Typer adds these two last
            if option.name in ("install_completion", "show_completion"):
                everywhere.spare_pydantic(option)
        # Before the command line is parsed, so that mistakes in it are reported in this form too.
        current = run.start(Run(json="--json" in given, debug="--debug" in given))
        current.report = _report_in(given)
        if f"_{PROGRAM.upper()}_COMPLETE" in os.environ:
            # Help texts wrap at this width, and a shell takes every line for a name.
            os.environ["COLUMNS"] = "9999"
        extra.update(standalone_mode=False, obj=current)
        run_command = super().main
        name = prog_name or PROGRAM
        sys.exit(_guarded(current, lambda: run_command(args, name, *more, **extra)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word; where there is none, the error names the nearest."""
        meant = elsewhere.MEANT.get(args[0].lower()) if args else None
        if meant and args[0] not in self.commands:
            raise UsageError(f"no command {args[0]!r}", "", f"Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was parsed.

        Raises:
            Interrupted: on Ctrl-C, for which Typer has no message.
        """
        ctx.default_map = settings.defaults(self.commands)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise interrupted(code_of(error)) from error


def _report_in(given: list[str]) -> Path | None:
    """The value of --report."""
    given = given[: given.index("--")] if "--" in given else given
    for word, following in zip(given, [*given, ""][1:], strict=True):
        flag, equals, value = word.partition("=")
        if flag == "--report" and (value or following):
            return Path(value if equals else following)
    return None


def _leaves(group: Any) -> list[Any]:
    """The commands of a group that have no subcommands."""
    found = []
    for command in group.commands.values():
        found += _leaves(command) if hasattr(command, "commands") else [command]
    return found


def note_json(ctx: typer.Context, value: bool) -> bool:
    """Callback of `--json`: errors are JSON too, also if the environment set the option."""
    current = ctx.find_object(Run)
    if current and value:
        current.json = True
    return value


def explain(error: Exception) -> tuple[int, str]:
    """The exit code of an error and its message."""
    if isinstance(error, LongctxError):
        return error.exit_code, str(error)
    if isinstance(error, typer.TyperException):
        return error.exit_code, invalid.message(error) + _origin(error) + _help_hint(error)
    if isinstance(error, typer.Abort):
        return 1, "aborted"
    if is_memory(error):
        return 1, "out of memory. Use a smaller model, --dtype bf16, or another --device"
    if isinstance(error, OSError):
        return _of_system(error)
    hint = "This is a fault of longctx; --debug shows where it happened"
    return 1, f"internal error: {type(error).__name__}: {error}. {hint}"


def _of_system(error: OSError) -> tuple[int, str]:
    """The exit code and message for a system error on a path that a user named."""
    why = error.strerror or str(error)
    if error.filename is None:
        return 1, str(error)
    wrong = error.errno in NO_PATH
    remedy = "Name another path." if wrong else "Check the path, and who may read and write there."
    shown = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
    return UsageError.exit_code if wrong else 1, f"cannot use {str(shown)!r}: {why}. {remedy}"


def _guarded(current: Run, call: Callable[[], Any]) -> int:
    """Calls, and turns the outcome into an exit code, also Ctrl-C at any moment."""

    def end(code: int) -> int:
        progress.stop_drawing()
        return finish(current, tell(interrupted(code), current))

    try:
        with first_alone(end=end) as first:
            return _ended(current, call, first)
    except KeyboardInterrupt as error:  # while something else was about to be reported
        return end(code_of(error))


def _ended(current: Run, call: Callable[[], Any], first: Any) -> int:
    """Calls, and reports what went wrong; from then on Ctrl-C does nothing.

    An error after Ctrl-C is reported as Ctrl-C, since libraries turn it into their own errors.
    """
    try:
        code = call()
        sys.stdout.flush()
        first.settled = True
    except KeyboardInterrupt as error:
        code = tell(interrupted(code_of(error)), current)
    except Exception as error:  # the last resort: one line and exit 1, a traceback with --debug
        first.settled = True
        if current.debug:
            render.error("".join(traceback.format_exception(error)).rstrip("\n"))
        if first.came and not isinstance(error, Interrupted):
            error = interrupted(first.came)
        code = 1 if isinstance(error, BrokenPipeError) else tell(error, current)
    _leave_output()
    return finish(current, code if isinstance(code, int) else 0)


def tell(error: Exception, current: Run) -> int:
    """Reports an error on standard error, as a JSON object or as text.

    Returns:
        Its exit code.
    """
    code, message = explain(error)
    current.error = {"code": code, "message": render.clean(message)}
    if current.json:
        render.print_json({"error": current.error}, sys.stderr)
    else:
        render.error(message if message.startswith("internal") else f"error: {message}")
    return code


def finish(current: Run, code: int) -> int:
    """Writes the report of a finished run, if requested.

    Returns:
        The exit code; a different one only if the report of a successful run cannot be written.
    """
    if current.report is not None:
        try:
            report.write(current.report, current, code)
        except BrokenPipeError:
            _leave_output()
            return code or 1
        except LongctxError as error:
            return code or tell(error, current)
    return code


def _log_end(current: Run, error: BaseException | None) -> None:
    """Logs how a run ended, with the kind of error; its message is reported elsewhere."""
    how = "done" if error is None else f"ended by {type(error).__name__}"
    if isinstance(error, typer.Exit):
        how = f"exit code {error.exit_code}"
        error = None
    _log.info("%s after %.2f s", how, current.seconds)
    if error is not None:
        _log.debug("where it was", exc_info=error)


def _origin(error: Any) -> str:
    """The line of the config file that a wrong value is from; empty if it is not from there."""
    ctx, option = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None or option is None:
        return ""
    source = ctx.get_parameter_source(option.name)
    if source is None or source.name != "DEFAULT_MAP":
        return ""
    words = ctx.command_path.split()
    place = settings.where_from(option.opts[0].removeprefix("--"), words[1] if words[1:] else "")
    return f"\nThe value is from {place}."


def _help_hint(error: Any) -> str:
    ctx = getattr(error, "ctx", None)
    return f"\nTry '{ctx.command_path} --help'." if ctx else ""


def _leave_output() -> None:
    """Avoids the interpreter's complaint at exit if nobody reads standard output."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError, LongctxError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
