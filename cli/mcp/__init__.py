"""`longctx mcp`: a library as a server of the Model Context Protocol, for agents and editors.

The protocol runs over standard input and output; everything else is written to standard error. The
SDK is an extra, and is imported only by a run.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from longctx.cli import options, standard_output
from longctx.cli.run import current
from longctx.cli.settings import library_path
from longctx.core.common.distribution import install_command
from longctx.core.common.errors import LongctxError

EXAMPLES = """\
  longctx mcp
  longctx mcp --allow docs --allow src
  longctx mcp --library ~/books --answer-model ~/models/llama.Q4_K_M.gguf
  claude mcp add longctx -- longctx mcp --allow docs
"""


def run(
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow",
            metavar="FOLDER",
            show_default=False,
            help="Folder from which clients may have files read, for each folder once; links out "
            "of it are not followed. By default none.",
        ),
    ] = None,
    library: options.LibraryDir = None,
    model: options.Model = None,
    answer_model: options.AnswerModel = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
) -> None:
    """Serves a library to coding agents, by MCP.

    A client of the Model Context Protocol starts this command itself, and talks to it over standard
    input and output; docs/integrations.md has the lines for its settings. Tools: list_documents,
    find, ask and ingest; documents and their lines are resources. Models are loaded at the first
    question, and stay until the client leaves. Needs the package `mcp`.
    """
    _require_sdk()
    standard_output.require_free("the protocol", current())
    from longctx.cli.mcp.allowed import Allowed

    allowed = Allowed(allow or [])
    import longctx
    from longctx.cli.mcp import session

    choices = {"device": device, "dtype": dtype, "threads": threads}
    session.serve(
        library_path(library), longctx.Model(model, answers=answer_model, **choices), allowed
    )


def _require_sdk() -> None:
    """LongctxError, with what installs it, if the SDK is not there."""
    if find_spec("mcp") is None:
        why = "the package mcp is not installed"
        raise LongctxError("cannot serve MCP", why, f"Run: {install_command('mcp')}.")
