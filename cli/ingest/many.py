"""What `ingest --each` tells of many files: a line of each when it is done, and all at the end."""

from typing import TYPE_CHECKING

import typer

from longctx.cli import render
from longctx.cli.ingest.results import PARTLY_READ, left_out, missing
from longctx.cli.text import counted, size

if TYPE_CHECKING:
    from longctx.core.ingest.ingest import Ingested
    from longctx.core.ingest.many import Each, Failed


def one(done: "Ingested | Failed") -> None:
    """A line on a file of many, when it is done."""
    if hasattr(done, "message"):
        render.problem(f"failed: {done.message}")
        return
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens, state {size(done.state_bytes)}"
    render.line(told)
    missing(done.skipped, done.lost)


def show(result: "Each", json: bool) -> None:
    """The result of `ingest --each`.

    Raises:
        typer.Exit: with 3 where anything could not be read.
    """
    tell(result, json)
    if result.failed or any(done.skipped or done.lost for done in result.documents):
        raise typer.Exit(PARTLY_READ)


def tell(result: "Each", json: bool) -> None:
    """What became of many files so far, as a JSON object or in a note."""
    render.result(result.as_dict(), json)
    left_out(result.left_out)
    tokens = sum(done.tokens for done in result.documents)
    state = sum(done.state_bytes for done in result.documents)
    documents = counted(len(result.documents), "document")
    told = f"{documents}, {counted(tokens, 'token')}, state {size(state)}"
    failed = counted(len(result.failed), "file")
    render.note(f"{told}; {failed} failed" if result.failed else told)
