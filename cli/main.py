"""The program: its commands in the order in which `--help` lists them, and its own options.

A command is one file with a function `run`, whose docstring is its help, and `EXAMPLES`, shown
below it; a folder with `COMMANDS` is a command with subcommands. Command files import nothing heavy
at module level, so that help appears at once.
"""

from types import ModuleType
from typing import Annotated

import typer

from longctx.cli import (
    ask,
    bench,
    calibrate,
    doctor,
    eval,
    everywhere,
    export,
    find,
    gc,
    import_,
    ingest,
    list,
    mcp,
    model,
    niah,
    profiles,
    rename,
    rm,
    serve,
    show,
    verify,
)
from longctx.cli.exit_codes import EXIT_CODES
from longctx.cli.program import Command, Program

COMMANDS = {
    "ingest": ingest,
    "ask": ask,
    "find": find,
    "serve": serve,
    "list": list,
    "show": show,
    "rename": rename,
    "rm": rm,
    "export": export,
    "import": import_,
    "verify": verify,
    "gc": gc,
    "niah": niah,
    "eval": eval,
    "bench": bench,
    "calibrate": calibrate,
    "model": model,
    "mcp": mcp,
    "profiles": profiles,
    "doctor": doctor,
}
EPILOG = """\b
Examples:
  longctx ingest book.txt
  longctx ask "Who kept the lighthouse?"
  longctx ingest book.txt -v --report run.json

\b
Exit codes (docs/exit-codes.md):
""" + "\n".join(f"  {code:3}  {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    cls=Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        from longctx.core.common import distribution

        typer.echo(f"longctx {distribution.version() or 'unknown'}")
        raise typer.Exit


def _print_help(ctx: typer.Context, value: bool) -> None:
    if value:
        typer.echo(ctx.get_help())
        raise typer.Exit


# Typer's own group --help would import pydantic for the help of every command: 0.1 s.
ShowHelp = Annotated[
    bool,
    typer.Option(
        "--help",
        "-h",
        callback=_print_help,
        is_eager=True,
        show_default=False,
        help="Show this message and leave.",
    ),
]


@app.callback(invoke_without_command=True, epilog=EPILOG, add_help_option=False)
def start(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            show_default=False,
            help="Print the version and leave.",
        ),
    ] = False,
    verbose: everywhere.Verbose = 0,
    quiet: everywhere.Quiet = False,
    progress: everywhere.Progress = None,
    log_file: everywhere.LogFile = None,
    report: everywhere.Report = None,
    debug: everywhere.Debug = False,
    show_help: ShowHelp = False,
) -> None:
    """Answers questions about documents longer than any model's window.

    A document is ingested once; its state stays on disk, and any number of questions are answered
    from it, with the places in the text. Settings come from flags, then from LONGCTX_* variables,
    then from the user's config file (`longctx doctor` says where that is). The options
    from --verbose to --debug are those of every command, and may stand before it or after it.
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


def _add(parent: typer.Typer, name: str, module: ModuleType) -> None:
    """Adds a command, with its subcommands if any."""
    epilog = f"\b\nExamples:\n{module.EXAMPLES}"
    if not hasattr(module, "COMMANDS"):
        parent.command(name, cls=Command, epilog=epilog)(module.run)
        return

    def group(ctx: typer.Context, show_help: ShowHelp = False) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)

    group.__doc__ = module.run.__doc__
    inner = typer.Typer(rich_markup_mode=None)
    inner.callback(invoke_without_command=True, epilog=epilog, add_help_option=False)(group)
    parent.add_typer(inner, name=name)
    for command, file in module.COMMANDS.items():
        _add(inner, command, file)


for name, module in COMMANDS.items():
    _add(app, name, module)
