"""`longctx ingest`: reads a document once and keeps its state."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import each as files
from longctx.cli import options, progress, render
from longctx.cli.interrupt import within
from longctx.cli.loading import make_setup
from longctx.cli.program import Interrupted, finish, tell
from longctx.cli.run import current
from longctx.cli.settings import library_path
from longctx.cli.text import duration, size
from longctx.core.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.cadence import Cadence
    from longctx.core.ingest import Ingested, Progress
    from longctx.core.plan import Plan
    from longctx.core.setup import Setup
    from longctx.core.sources.rules import Rules

EXAMPLES = """\
  longctx ingest book.txt
  longctx ingest part1.txt part2.pdf --name novel
  longctx ingest src/ "docs/**/*.md" --name project
  longctx ingest letters/ --each
  zcat log.gz | longctx ingest - --name log
  longctx ingest book.txt --model ~/models/Qwen2.5-7B --dry-run
  longctx ingest book.txt --keep-kv --kv-dtype int8
  longctx ingest --append novel part3.txt
  longctx ingest app.log --follow
"""


# What the document itself says where it is appended to, and what would contradict that.
OWN = ("name", "each", "method", "profile", "keep_kv", "kv_dtype", "replace", "dry_run")


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, folders, archives or patterns (docs/**/*.md) to read; `-` is standard "
            "input.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the document; by default that of the first file or folder.",
            metavar="NAME",
        ),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option(
            "--append",
            help="Make this document longer, as if all had been read at once: by what its last "
            "source has grown, if the first PATH is that file or begins with its bytes; other "
            "files become further parts.",
            metavar="NAME",
        ),
    ] = None,
    follow: Annotated[
        bool,
        options.flag(
            "--follow",
            "Go on with the last PATH, a log that grows, until Ctrl-C: what came is appended "
            "when it fills a chunk, or after ten seconds; off by default.",
        ),
    ] = False,
    each: Annotated[
        bool,
        options.flag(
            "--each",
            "Make one document of every file, named after its path, and go on past those that "
            "fail; off by default.",
        ),
    ] = False,
    hidden: options.Hidden = False,
    no_ignore: options.NoIgnore = False,
    raw: options.Raw = False,
    max_unpacked: options.MaxUnpacked = None,
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

    Several files become one document. In folders, .gitignore files are followed and what is no text
    is left out; docs/sources.md says which formats are read. Text is read as a stream, so its
    length is limited by the disk alone. While it is read, progress is shown on standard error; the
    result goes to standard output. A reading that was stopped, by Ctrl-C or by force, goes on from
    its last checkpoint when the same command is given again.

    A document that is appended to can be asked all the while: it is as it was until the longer one
    is whole. A source that has changed otherwise than by growing is refused, and so is one that was
    unpacked or converted.
    """
    _require_fit(ctx, paths, append, follow)
    steps: list[Ingested] = []
    with _stoppable(json, steps) as note_progress:
        from longctx.core.sources.find import check
        from longctx.core.sources.rules import Rules
        from longctx.core.units import parse_bytes, parse_tokens_or_seconds

        unpacked = parse_bytes(max_unpacked) if max_unpacked else None
        rules = Rules(hidden, no_ignore, raw, unpacked)
        check(paths, rules)  # a missing file is told before anything slow
        _check_each(each, name, dry_run)
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
            return _plan(place, paths, setup, name, limit, rules, json)
        from longctx.core.append import append as append_to
        from longctx.core.cadence import Cadence
        from longctx.core.each import ingest_each
        from longctx.core.ingest import ingest
        from longctx.core.store.library import Library
        from longctx.core.store.places import document_name

        if follow:
            if append:
                Library.open(place).document(append)  # there must be one of this name
            called = append or name or document_name(paths[0])
            given = setup, Cadence.given(*every), limit, rules
            return _follow(place, called, paths, *given, json, note_progress, steps)
        with progress.reading() as show_progress:

            def on_progress(state: "Progress") -> None:
                note_progress(state)
                show_progress(state)

            def new_cadence() -> Cadence:
                return Cadence.given(*every)

            of_all = (limit, on_progress, rules)
            if each:
                told = (lambda done: None) if json else files.one
                many = ingest_each(place, paths, setup, replace, new_cadence, *of_all, told)
            elif append:
                done = append_to(place, append, paths, setup, new_cadence(), *of_all)
            else:
                done = ingest(place, paths, setup, name, replace, new_cadence(), *of_all)
    if each:
        files.show(many, json)
    else:
        _show(done, json)


def _check_each(each: bool, name: str | None, dry_run: bool) -> None:
    """UsageError for options that make no sense with --each."""
    if each and (name or dry_run):
        raise UsageError(
            f"cannot take --each with {'--name' if name else '--dry-run'}",
            "documents are named after their files" if name else "the figures are of one document",
            "Leave one of them out.",
        )


def _require_fit(ctx: typer.Context, paths: list[str], append: str | None, follow: bool) -> None:
    """Refuses options that contradict one another.

    Raises:
        UsageError: with what to do.
    """
    given = {name for name in OWN if _is_typed(ctx, name)}
    if not append:
        given &= {"each", "replace", "dry_run"} if follow else set()
    wrong = sorted(given)
    if wrong:
        flag = "--" + wrong[0].replace("_", "-")
        raise UsageError(
            f"{flag} cannot be given with {'--append' if append else '--follow'}",
            "a document that becomes longer is read on as it was begun" if append else "",
            "Leave it out.",
        )
    if follow and paths[-1] == "-":
        raise UsageError("cannot follow standard input", "", "Name a file last.")


def _is_typed(ctx: typer.Context, name: str) -> bool:
    """Whether an option comes from the command line, not from the environment or a file."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _follow(
    place: Path,
    name: str,
    paths: list[str],
    setup: "Setup",
    cadence: "Cadence",
    limit: int | None,
    rules: "Rules",
    json: bool,
    note_progress: "Callable[[Progress], None]",
    steps: "list[Ingested]",
) -> None:
    """Follows a file until Ctrl-C, which is how that ends: with exit code 0.

    Args:
        note_progress: called after every chunk.
        steps: gets the last whole state.
    """
    from dataclasses import replace

    from longctx.core.follow import follow

    def on_step(done: "Ingested") -> None:
        steps[:] = [done]
        render.note(_summary(done))

    with progress.reading() as show_progress:

        def on_progress(state: "Progress") -> None:
            note_progress(state)
            show_progress(state)

        given = cadence, limit, on_progress, on_step, lambda why: render.note(str(why))
        done = follow(place, name, paths, setup, *given, rules=rules)
    _show(replace(done, changed=[]), json)


@contextmanager
def _stoppable(
    json: bool, steps: "Sequence[Ingested]" = ()
) -> "Iterator[Callable[[Progress], None]]":
    """Ctrl-C ends the reading soon, with what is kept of it.

    Args:
        json: print what was followed as a JSON object.
        steps: what was read of a file that is followed: then Ctrl-C is no error.

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

    def end() -> int:
        progress.stop_drawing()
        if steps:
            _print(steps[-1], json)
            return finish(current(), 0)
        return finish(current(), tell(stopped(), current()))

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
    _print(done, json)
    for note in done.notes:
        render.note(note)
    for source in done.changed:
        name = render.one_line(source)
        render.note(f"{name} has changed while it was read; the document is what was there first")
    files.left_out(done.left_out)
    files.missing(done.skipped, done.lost)
    if done.undecodable:
        render.note(
            f"{done.undecodable:,} places are no text in their encoding; they are read as U+FFFD"
        )
    if done.forced_splits:
        render.note(
            f"{done.forced_splits:,} places in very long lines were cut; tokens may differ there"
        )
    if done.skipped or done.lost:
        raise typer.Exit(files.PARTLY_READ)


def _print(done: "Ingested", json: bool) -> None:
    if not render.result(done.as_dict(), json):
        render.line(_summary(done))


def _summary(done: "Ingested") -> str:
    many = f" from {done.sources:,} files" if done.sources > 1 else ""
    state = size(done.state_bytes)
    told = f"{done.name}: {done.status}, {done.tokens:,} tokens{many}, state {state}"
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
    rules: "Rules",
    json: bool,
) -> None:
    """Says what an ingest would take.

    Raises:
        typer.Exit: with 1 where there is no room for it, with 3 where a source cannot be read.
    """
    from longctx.core.plan import plan

    with progress.status("measuring"):
        planned = plan(place, paths, setup, name, max_size, rules)
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
    files.left_out(planned.left_out)
    files.missing(planned.skipped, [])
    if not planned.fits:
        raise typer.Exit(1)
    if planned.skipped:
        raise typer.Exit(files.PARTLY_READ)


def _host(planned: "Plan") -> list[tuple[str, str]]:
    """Memory beside a GPU, where it is wanted."""
    if not planned.host_bytes:
        return []
    return [("host memory", _of(planned.host_bytes, planned.free_host_bytes))]


def _of(needed: int | None, free: int | None) -> str:
    return f"{size(needed)}, {size(free)} free"
