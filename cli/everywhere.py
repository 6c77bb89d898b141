"""The options of every command: what a run shows, logs and reports.

They can precede or follow the command; `Program` gives each command those of the program. Like
other settings they have environment variables and can be set in the config file.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from longctx.cli import run
from longctx.cli.run import Form, Run

NAMES = ("verbose", "quiet", "progress", "log_file", "report", "debug")
RANKS = {"COMMANDLINE": run.FLAG, "ENVIRONMENT": run.VARIABLE, "DEFAULT_MAP": run.FILE}


def _noted(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Callback of all of them: the run keeps the value from the place that takes precedence."""
    current, source = ctx.find_object(Run), ctx.get_parameter_source(param.name)
    rank = RANKS.get(source.name if source else "")
    if current and rank:
        current.choose(param.name, value, rank)
    return value


def spare_pydantic(option: Any) -> None:
    """Checks an option only if it is given: Typer's check imports pydantic, which takes 0.1 s.

    Help is shown only after the program's own options are checked.
    """
    if "process_value" in vars(option):  # of a program that runs again
        return
    check, option.default = option.process_value, None
    option.process_value = lambda ctx, value: None if value is None else check(ctx, value)


def _option(*flags: str, help: str, **more: Any) -> Any:
    name = flags[0].removeprefix("--").upper().replace("-", "_")
    return typer.Option(
        *flags,
        envvar=f"LONGCTX_{name}",
        callback=_noted,
        expose_value=False,
        show_default=False,
        help=help,
        **more,
    )


Verbose = Annotated[
    int,
    _option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        help="Log what is done, with sizes and times, on standard error; -vv logs more. Off by "
        "default.",
    ),
]
Quiet = Annotated[
    bool,
    _option("--quiet", "-q", help="Show only the result and errors; off by default."),
]
Progress = Annotated[
    Form | None,
    _option(
        "--progress",
        metavar="FORM",
        help="How progress is shown on standard error: bar (at a terminal; elsewhere a line every "
        "30 s), json (one object a line) or none; by default bar, or none with --quiet.",
    ),
]
LogFile = Annotated[
    Path | None,
    _option(
        "--log-file",
        metavar="FILE",
        help="Append the full log, with times, to this file (`-`: standard output); by default it "
        "is not kept.",
    ),
]
Report = Annotated[
    Path | None,
    _option(
        "--report",
        metavar="FILE",
        help="Write a JSON object to this file (`-`: standard output) at the end, even if the run "
        "fails: arguments, versions, device, model, result, times, exit code. By default "
        "nothing is written.",
    ),
]
Debug = Annotated[
    bool,
    _option("--debug", help="Show the traceback of an error; off by default."),
]
