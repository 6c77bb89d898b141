"""`ingest --dry-run`: what a reading would take, and whether there is room for it."""

from typing import TYPE_CHECKING

import typer

from longctx.cli import progress, render
from longctx.cli.ingest.results import PARTLY_READ, left_out, missing
from longctx.cli.text import duration, size

if TYPE_CHECKING:
    from longctx.cli.ingest.job import Job
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest.plan import Plan


def measure(job: "Job", setup: "Setup") -> "Plan":
    """What the reading would take; nothing is stored.

    Raises:
        LongctxError: as `plan`.
    """
    from longctx.core.ingest.plan import plan

    with progress.status("measuring"):
        return plan(job.library, job.paths, setup, job.name, job.max_size, job.rules)


def show(planned: "Plan", json: bool) -> None:
    """Says what a reading would take.

    Raises:
        typer.Exit: with 1 where there is no room for it, with 3 where a source cannot be read.
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


def _host(planned: "Plan") -> list[tuple[str, str]]:
    """Memory beside a GPU, where it is wanted."""
    if not planned.host_bytes:
        return []
    return [("host memory", _of(planned.host_bytes, planned.free_host_bytes))]


def _of(needed: int | None, free: int | None) -> str:
    return f"{size(needed)}, {size(free)} free"
