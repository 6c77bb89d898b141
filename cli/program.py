"""What surrounds every command: the config file before it, errors and exit codes after it.

Here, and nowhere else, an error becomes a message on standard error and an exit code. Knows no
command by name.
"""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from longctx.cli import render, settings
from longctx.core.errors import LongctxError


@dataclass
class Run:
    """How this run tells an error.

    Attributes:
        json: as a JSON object.
        debug: with a traceback.
    """

    json: bool
    debug: bool


class Interrupted(LongctxError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class Program(TyperGroup):
    """The command line as a whole, as the console script and Typer's test runner call it."""

    def main(
        self, args: list[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> None:
        """Runs a command and leaves with its exit code."""
        given = sys.argv[1:] if args is None else args
        # Looked for before the command line is parsed, so that mistakes in it are told so too.
        run = Run(json="--json" in given, debug="--debug" in given)
        extra.update(standalone_mode=False, obj=run)
        run_command = super().main
        sys.exit(_guarded(run, lambda: run_command(args, prog_name or "longctx", **extra)))

    def invoke(self, ctx: typer.Context) -> Any:
        """Runs the command that was parsed.

        Raises:
            Interrupted: by Ctrl-C, for which Typer has no message.
        """
        ctx.default_map = settings.defaults(self.commands)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted("interrupted") from error


def note_json(ctx: typer.Context, value: bool) -> bool:
    """Callback of `--json`: errors are told as JSON, also where the environment asked for it."""
    run = ctx.find_object(Run)
    if run and value:
        run.json = True
    return value


def note_debug(ctx: typer.Context, value: bool) -> None:
    """Callback of `--debug`."""
    run = ctx.find_object(Run)
    if run and value:
        run.debug = True


def explain(error: Exception) -> tuple[int, str]:
    """The exit code of an error and what to say of it."""
    if isinstance(error, LongctxError):
        return error.exit_code, str(error)
    if isinstance(error, typer.TyperException):
        return error.exit_code, error.format_message() + _help_hint(error)
    if isinstance(error, typer.Abort):
        return 1, "aborted"
    if _is_memory(error):
        return 1, "out of memory. Use a smaller model, --dtype bf16, or another --device"
    if isinstance(error, OSError):
        return 1, str(error)
    hint = "This is a fault of longctx; --debug shows where it happened"
    return 1, f"internal error: {type(error).__name__}: {error}. {hint}"


def _guarded(run: Run, call: Callable[[], Any]) -> int:
    """Calls, and turns whatever comes of it into an exit code."""
    try:
        code = call()
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
        return 1
    except Exception as error:
        if run.debug:
            traceback.print_exception(error)
        code = tell(error, run.json)
    return code if isinstance(code, int) else 0


def tell(error: Exception, json: bool) -> int:
    """Says on standard error what an error is, as a JSON object or as text.

    Returns:
        Its exit code.
    """
    code, message = explain(error)
    if json:
        render.print_json({"error": {"code": code, "message": render.clean(message)}}, sys.stderr)
    else:
        render.note(message if message.startswith("internal") else f"error: {message}")
    return code


def _help_hint(error: Any) -> str:
    ctx = getattr(error, "ctx", None)
    return f"\nTry '{ctx.command_path} --help'." if ctx else ""


def _is_memory(error: Exception) -> bool:
    # torch is not imported for this: its CUDA error is known by name, its CPU one by its words.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _abandon_output() -> None:
    """Nobody reads standard output any more; spares the interpreter's complaint at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
