"""What `ingest` prints: on a document, on many, on a plan, and on files that it could not read."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from longctx.cli import render
from longctx.cli.text import counted, duration, size

if TYPE_CHECKING:
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.many import Each, Failed
    from longctx.core.ingest.plan import Estimate

PARTLY_READ = 3  # exit code
SHOWN = 10  # files that are named; --json has all
EMPTY = "__init__.py': it is empty"  # which most folders of a Python package have
PROBLEMS = 100  # likewise for unreadable sources; an archive may have thousands


def show(done: "Ingested", json: bool) -> None:
    """The result, and what a person should know about it.

    Raises:
        typer.Exit: with 3 if a source could not be read.
    """
    if not render.result(done.as_dict(), json):
        render.line(summary(done))
    if not tell_of(done):
        raise typer.Exit(PARTLY_READ)


def tell_of(done: "Ingested") -> bool:
    """Tells what a person should know of a document that was read; whether all could be read."""
    for note in done.notes:
        render.note(note)
    for source in done.changed:
        name = render.one_line(source)
        render.note(f"{name} changed while it was read; the document has the earlier content")
    _tell("gone", [render.one_line(name) for name in done.gone], SHOWN, render.note)
    left_out(done.left_out)
    missing(done.skipped, done.lost)
    if done.undecodable:
        render.note(f"{done.undecodable:,} undecodable places are read as U+FFFD")
    if done.forced_splits:
        render.note(
            f"{done.forced_splits:,} places in very long lines were cut; tokens may differ there"
        )
    return not (done.skipped or done.lost)


def summary(done: "Ingested") -> str:
    """The result in one line."""
    many = f" from {done.sources:,} files" if done.sources > 1 else ""
    state = size(done.state_bytes)
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens{many}, state {state}"
    if done.status == "unchanged":
        return told
    if done.reused_sources:
        told += f", {done.reused_sources:,} of {done.sources:,} files as they were"
    elif done.reused_tokens:
        told += f", {done.reused_tokens:,} of them from an earlier run"
    return f"{told}, {duration(done.seconds)} ({done.tokens_per_s:,.0f} tokens/s)"


def show_one_of_many(done: "Ingested | Failed", json: bool) -> None:
    """A line on a finished file of many; as JSON, an item of what `show_many` prints at the end."""
    from longctx.core.ingest.many import Failed

    if json:
        render.print_json(asdict(done))
        return
    if isinstance(done, Failed):
        render.problem(f"failed: {done.message}")
        return
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens, state {size(done.state_bytes)}"
    render.line(told)
    missing(done.skipped, done.lost)


def show_many(result: "Each", json: bool) -> None:
    """The result of `ingest --each`.

    Raises:
        typer.Exit: with 3 if anything could not be read.
    """
    tell_many(result, json)
    if result.failed or any(done.skipped or done.lost for done in result.documents):
        raise typer.Exit(PARTLY_READ)


def tell_many(result: "Each", json: bool) -> None:
    """The outcome of many files so far, as a JSON object or in a note."""
    render.result(result.as_dict(), json)
    for note in dict.fromkeys(note for done in result.documents for note in done.notes):
        render.note(note)
    left_out(result.left_out)
    tokens = sum(done.tokens for done in result.documents)
    state = sum(done.state_bytes for done in result.documents)
    documents = counted(len(result.documents), "document")
    told = f"{documents}, {counted(tokens, 'token')}, state {size(state)}"
    failed = counted(len(result.failed), "file")
    render.note(f"{told}; {failed} failed" if result.failed else told)


def show_plan(planned: "Estimate", json: bool) -> None:
    """Shows what a reading would need.

    Raises:
        typer.Exit: with 1 if there is no room for it, with 3 if a source cannot be read.
    """
    if not render.result(planned.as_dict(), json):
        render.facts(
            [
                ("name", planned.name),
                ("sources", f"{planned.sources:,}"),
                ("tokens", f"{planned.tokens:,}"),
                ("text", size(planned.bytes)),
                ("disk", _of(planned.disk_bytes, planned.free_disk_bytes)),
                ("peak memory", _of(planned.peak_memory_bytes, planned.free_memory_bytes)),
                *_host(planned),
                ("time", f"{duration(planned.seconds)} ({planned.tokens_per_s:,.0f} tokens/s)"),
                ("method", f"{planned.method} on {planned.device} in {planned.dtype}"),
                ("fits", "yes" if planned.fits else "no"),
            ]
        )
    left_out(planned.left_out)
    missing(planned.skipped, [])
    if not planned.fits:
        raise typer.Exit(1)
    if planned.skipped:
        raise typer.Exit(PARTLY_READ)


def _host(planned: "Estimate") -> list[tuple[str, str]]:
    """Host memory beside a GPU, where it is needed."""
    if not planned.host_bytes:
        return []
    return [("host memory", _of(planned.host_bytes, planned.free_host_bytes))]


def _of(needed: int | None, free: int | None) -> str:
    return f"{size(needed)}, {size(free)} free"


def left_out(reasons: list[str]) -> None:
    """Lists non-text files in folders and archives; Python's empty `__init__.py` in one line."""
    empty = [reason for reason in reasons if EMPTY in reason]
    if len(empty) > 1:
        reasons = [reason for reason in reasons if EMPTY not in reason]
        reasons.append(f"{len(empty):,} files __init__.py, which are empty")
    _tell("left out", reasons, SHOWN, render.note)


def missing(skipped: list[str], lost: list[str]) -> None:
    """Reports, even with --quiet, what should have been read and was not."""
    for kind, reasons in (("skipped", skipped), ("lost", lost)):
        _tell(kind, reasons, PROBLEMS, render.problem)


def _tell(kind: str, reasons: list[str], most: int, tell: Callable[[str], None]) -> None:
    for reason in reasons[:most]:
        tell(f"{kind}: {reason}")
    if len(reasons) > most:
        tell(f"{kind}: {len(reasons) - most:,} more (--json has all)")
