"""One run of `longctx mcp`: from the command's options to the end of the connection."""

from pathlib import Path

import longctx
from longctx.cli.interrupt import GRACE, within
from longctx.cli.mcp.allowed import Allowed
from longctx.cli.mcp.served import Served
from longctx.cli.mcp.server import LibraryServer
from longctx.cli.program import finish, interrupted, tell
from longctx.cli.run import current
from longctx.core.common.distribution import version
from longctx.core.sources import parser


def serve(library: Path, model: "longctx.Model", allowed: Allowed) -> None:
    """Serves a library until the client leaves.

    Args:
        library: its folder.
        model: answers, and stays loaded until then.
        allowed: what may be read.

    Raises:
        KeyboardInterrupt: on Ctrl-C or `kill`.
    """
    with model, longctx.Library(library, model=model) as opened:
        server = LibraryServer(Served(opened, allowed), version() or "")
        try:
            # The SDK waits for standard input in a thread that nothing but input ends.
            with within(_ended):
                server.run("stdio")
        finally:
            server.settle(GRACE)
            parser.end()  # the child process that parses files, if any


def _ended(code: int) -> int:
    """Reports a signal that ends the process; returns the exit code."""
    return finish(current(), tell(interrupted(code), current()))
