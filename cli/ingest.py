"""`longctx ingest`: reads a document once and keeps its state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options, render
from longctx.cli.interrupt import within
from longctx.cli.loading import make_setup
from longctx.cli.program import Interrupted, tell
from longctx.cli.settings import library_path
from longctx.cli.text import duration, size

if TYPE_CHECKING:
    from longctx.core.ingest import Ingested, Progress
    from longctx.core.plan import Plan
    from longctx.core.setup import Setup

EXAMPLES = """\
  longctx ingest book.txt
  longctx ingest part1.txt part2.txt --name novel
  zcat log.gz | longctx ingest - --name log
  longctx ingest book.txt --model ~/models/Qwen2.5-7B --dry-run
  longctx ingest book.txt --keep-kv --kv-dtype int8
"""
PARTLY_READ = 3  # exit code


def run(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Text files to read; `-` is standard input."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the document; by default that of the first file.",
            metavar="NAME",
        ),
    ] = None,
    model: options.Model = None,
    profile: options.ProfileName = None,
    method: options.Method = None,
    keep_kv: Annotated[
        bool,
        options.flag(
            "--keep-kv",
            "Also keep the keys and values of every token, read as ReAttention reads: larger and "
            "slower, and asked in either way; off by default.",
        ),
    ] = False,
    kv_dtype: options.KvDtype = None,
    library: options.LibraryDir = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    replace: Annotated[
        bool,
        options.flag(
            "--replace",
            "Put the new state in the place of a document of this name, and begin anew what was "
            "begun from something else; off by default.",
        ),
    ] = False,
    checkpoint: Annotated[
        str | None,
        options.setting(
            "--checkpoint",
            "How often to save what was read: after so many tokens (64k) or so much time (90s); "
            "by default after 256K tokens or 60s, whichever comes first.",
            metavar="TOKENS|TIME",
        ),
    ] = None,
    max_size: options.MaxSize = None,
    dry_run: Annotated[
        bool,
        options.flag(
            "--dry-run", "Say what it would take (tokens, disk, memory, time), and store nothing."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Reads a document once and keeps its state.

    Several files become one document. Text is read as a stream, so its length is limited by the
    disk alone. While it is read, progress is shown on standard error; the result goes to standard
    output. A reading that was stopped, by Ctrl-C or by force, goes on from its last checkpoint when
    the same command is given again.
    """
    with _stoppable(json) as note_progress:
        from longctx.core.reader import open_sources
        from longctx.core.units import parse_bytes, parse_tokens_or_seconds

        open_sources(paths)  # a missing file is told before anything slow
        every = parse_tokens_or_seconds(checkpoint) if checkpoint else (None, None)
        limit = parse_bytes(max_size) if max_size else None
        setup = make_setup(
            model=model,
            profile=profile,
            method=method,
            keep_kv=keep_kv,
            kv_dtype=kv_dtype,
            device=device,
            dtype=dtype,
            threads=threads,
        )
        place = library_path(library)
        if dry_run:
            return _plan(place, paths, setup, name, limit, json)
        from longctx.core.cadence import Cadence
        from longctx.core.ingest import ingest

        with render.progress() as show_progress:

            def on_progress(state: "Progress") -> None:
                note_progress(state)
                show_progress(state)

            cadence = Cadence.given(*every)
            done = ingest(place, paths, setup, name, replace, cadence, limit, on_progress)
    _show(done, json)


@contextmanager
def _stoppable(json: bool) -> "Iterator[Callable[[Progress], None]]":
    """Ctrl-C ends the reading soon, with what is kept of it.

    Args:
        json: tell of it as a JSON object.

    Returns:
        What to call with each `Progress`.

    Raises:
        Interrupted: by Ctrl-C.
    """
    kept: int | None = None  # not known before the first progress

    def note_kept(progress: "Progress") -> None:
        nonlocal kept
        kept = progress.kept

    def stopped() -> Interrupted:
        remedy = "The same command goes on with it."
        if kept is not None:
            remedy = "The same command starts it again."
        if kept:
            remedy = f"{kept:,} tokens are kept; the same command goes on from there."
        return Interrupted("interrupted", "", remedy)

    def end() -> None:
        render.stop_drawing()
        tell(stopped(), json)

    try:
        with within(end):
            yield note_kept
    except KeyboardInterrupt as error:
        raise stopped() from error


def _show(done: "Ingested", json: bool) -> None:
    """The result, and what a person should know of it.

    Raises:
        typer.Exit: with 3 where a source could not be read.
    """
    if json:
        render.print_json(done.as_dict())
    else:
        render.line(_summary(done))
    for note in done.notes:
        render.note(note)
    for source in done.changed:
        render.note(f"{source} has changed while it was read; the document is what was there first")
    for reason in done.skipped:
        render.note(f"skipped: {reason}")
    if done.undecodable:
        render.note(
            f"{done.undecodable:,} places are no text in their encoding; they are read as U+FFFD"
        )
    if done.forced_splits:
        render.note(
            f"{done.forced_splits:,} places in very long lines were cut; tokens may differ there"
        )
    if done.skipped:
        raise typer.Exit(PARTLY_READ)


def _summary(done: "Ingested") -> str:
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens, state {size(done.state_bytes)}"
    if done.status == "unchanged":
        return told
    if done.reused_tokens:
        told += f", {done.reused_tokens:,} of them from an earlier run"
    return f"{told}, {duration(done.seconds)} ({done.tokens_per_s:,.0f} tokens/s)"


def _plan(
    place: Path,
    paths: list[str],
    setup: "Setup",
    name: str | None,
    max_size: int | None,
    json: bool,
) -> None:
    """Says what an ingest would take.

    Raises:
        typer.Exit: with 1 where there is no room for it.
    """
    from longctx.core.plan import plan

    with render.status("measuring"):
        planned = plan(place, paths, setup, name, max_size)
    if json:
        render.print_json(planned.as_dict())
    else:
        render.facts(
            [
                ("name", planned.name),
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
    if not planned.fits:
        raise typer.Exit(1)


def _host(planned: "Plan") -> list[tuple[str, str]]:
    """Memory beside a GPU, where it is wanted."""
    if not planned.host_bytes:
        return []
    return [("host memory", _of(planned.host_bytes, planned.free_host_bytes))]


def _of(needed: int | None, free: int | None) -> str:
    return f"{size(needed)}, {size(free)} free"
