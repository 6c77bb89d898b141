"""What `ingest` tells of files: those it left out, and, with --each, what became of every one."""

from typing import TYPE_CHECKING

import typer

from longctx.cli import render
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.each import Each, Failed
    from longctx.core.ingest import Ingested

PARTLY_READ = 3  # exit code
SHOWN = 10  # files that are named; --json has all


def left_out(reasons: list[str]) -> None:
    """Notes files in folders and archives that hold no text."""
    for reason in reasons[:SHOWN]:
        render.note(f"left out: {reason}")
    if len(reasons) > SHOWN:
        render.note(f"left out: {len(reasons) - SHOWN:,} more (--json has all)")


def missing(skipped: list[str], lost: list[str]) -> None:
    """Notes what should have been read and was not."""
    for reason in skipped:
        render.note(f"skipped: {reason}")
    for reason in lost:
        render.note(f"lost: {reason}")


def one(done: "Ingested | Failed") -> None:
    """A line on a file of many, when it is done."""
    if hasattr(done, "message"):
        render.note(f"failed: {done.message}")
        return
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens, state {size(done.state_bytes)}"
    render.line(told)
    missing(done.skipped, done.lost)


def show(result: "Each", json: bool) -> None:
    """The result of `ingest --each`.

    Raises:
        typer.Exit: with 3 where anything could not be read.
    """
    render.result(result.as_dict(), json)
    left_out(result.left_out)
    tokens = sum(done.tokens for done in result.documents)
    state = sum(done.state_bytes for done in result.documents)
    told = f"{len(result.documents):,} documents, {tokens:,} tokens, state {size(state)}"
    render.note(f"{told}; {len(result.failed):,} files failed" if result.failed else told)
    if result.failed or any(done.skipped or done.lost for done in result.documents):
        raise typer.Exit(PARTLY_READ)
