"""What `ingest` tells of a document that it has read, and of the files that it could not read.

What it tells of many documents is in `ingest_each.py`.
"""

from typing import TYPE_CHECKING

import typer

from longctx.cli import render
from longctx.cli.text import duration, size

if TYPE_CHECKING:
    from longctx.core.ingest.ingest import Ingested

PARTLY_READ = 3  # exit code
SHOWN = 10  # files that are named; --json has all
PROBLEMS = 100  # of what should have been read, likewise; an archive may have thousands


def show(done: "Ingested", json: bool) -> None:
    """The result, and what a person should know of it.

    Raises:
        typer.Exit: with 3 where a source could not be read.
    """
    print_one(done, json)
    for note in done.notes:
        render.note(note)
    for source in done.changed:
        name = render.one_line(source)
        render.note(f"{name} has changed while it was read; the document is what was there first")
    left_out(done.left_out)
    missing(done.skipped, done.lost)
    if done.undecodable:
        render.note(
            f"{done.undecodable:,} places are no text in their encoding; they are read as U+FFFD"
        )
    if done.forced_splits:
        render.note(
            f"{done.forced_splits:,} places in very long lines were cut; tokens may differ there"
        )
    if done.skipped or done.lost:
        raise typer.Exit(PARTLY_READ)


def print_one(done: "Ingested", json: bool) -> None:
    """The result alone."""
    if not render.result(done.as_dict(), json):
        render.line(summary(done))


def summary(done: "Ingested") -> str:
    """The result in a line."""
    many = f" from {done.sources:,} files" if done.sources > 1 else ""
    state = size(done.state_bytes)
    name = done.name if done.title in ("", done.name) else f"{done.name} ({done.title})"
    told = f"{name}: {done.status}, {done.tokens:,} tokens{many}, state {state}"
    if done.status == "unchanged":
        return told
    if done.reused_tokens:
        told += f", {done.reused_tokens:,} of them from an earlier run"
    return f"{told}, {duration(done.seconds)} ({done.tokens_per_s:,.0f} tokens/s)"


def left_out(reasons: list[str]) -> None:
    """Notes files in folders and archives that hold no text."""
    for reason in reasons[:SHOWN]:
        render.note(f"left out: {reason}")
    if len(reasons) > SHOWN:
        render.note(f"left out: {len(reasons) - SHOWN:,} more (--json has all)")


def missing(skipped: list[str], lost: list[str]) -> None:
    """Tells, also where quiet is wanted, what should have been read and was not."""
    for kind, reasons in (("skipped", skipped), ("lost", lost)):
        for reason in reasons[:PROBLEMS]:
            render.problem(f"{kind}: {reason}")
        if len(reasons) > PROBLEMS:
            render.problem(f"{kind}: {len(reasons) - PROBLEMS:,} more (--json has all)")
