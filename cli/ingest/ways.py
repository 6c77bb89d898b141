"""The ways to read of `ingest`: one document, a longer one, many, or a file that is followed.

Each hands its job to core, shows how far it is, and keeps for Ctrl-C what there is to tell.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from longctx.cli import progress, render
from longctx.cli.ingest import many as ingest_each
from longctx.cli.ingest.results import summary

if TYPE_CHECKING:
    from pathlib import Path

    from longctx.cli.ingest.job import Job
    from longctx.cli.ingest.stop import Stop
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest.ingest import Ingested, Progress
    from longctx.core.ingest.many import Each, Failed


def read(job: "Job", setup: "Setup", stop: "Stop") -> "Ingested":
    """Reads all sources into one document."""
    from longctx.core.ingest.ingest import ingest

    with _shown(stop) as on_progress:
        given = job.cadence(), job.max_size, on_progress, job.rules
        return ingest(job.library, job.paths, setup, job.name, job.replace, *given)


def append(job: "Job", setup: "Setup", stop: "Stop") -> "Ingested":
    """Makes a document longer."""
    from longctx.core.ingest.append import append

    with _shown(stop) as on_progress:
        given = job.cadence(), job.max_size, on_progress, job.rules
        return append(job.library, job.called, job.paths, setup, *given)


def read_each(job: "Job", setup: "Setup", stop: "Stop", json: bool) -> "Each":
    """Makes a document of every file; unless the result is JSON, a line tells of each."""
    from longctx.core.ingest import many as each

    def on_done(done: "Ingested | Failed") -> None:
        stop.note_done()
        if not json:
            ingest_each.one(done)

    stop.many = many = each.Each()
    with _shown(stop) as on_progress:
        given = job.cadence, job.max_size, on_progress, job.rules, on_done, many
        return each.ingest_each(job.library, job.paths, setup, job.replace, *given)


def follow(job: "Job", setup: "Setup", stop: "Stop", as_wanted: bool) -> "Ingested":
    """Follows a file until Ctrl-C or `kill`, which is how that ends: with exit code 0.

    Args:
        as_wanted: a document that is there must have been read as the setup says.

    Returns:
        The last whole state.
    """
    from longctx.core.ingest.follow import follow

    stop.followed = _there(job)

    def on_step(done: "Ingested") -> None:
        stop.followed = replace(done, changed=[])  # it changes all the time
        render.note(summary(done))

    def on_empty(file: "Path") -> None:
        render.note(f"{render.one_line(str(file))} is empty yet; it is read when something comes")

    with _shown(stop) as on_progress:
        given = job.cadence(), job.max_size, on_progress, on_step
        tell = *given, lambda why: render.note(str(why)), on_empty
        done = follow(
            job.library, job.called, job.paths, setup, *tell, rules=job.rules, as_wanted=as_wanted
        )
    return replace(done, changed=[])


def _there(job: "Job") -> "Ingested | None":
    """The whole document of this name, if there is one before anything is read."""
    from longctx.core.common.errors import LongctxError
    from longctx.core.ingest.ingest import as_it_was
    from longctx.core.store.library import Library

    with suppress(LongctxError):  # following it says what is wrong
        return as_it_was(Library.open(job.library).document(job.called))
    return None


@contextmanager
def _shown(stop: "Stop") -> "Iterator[Callable[..., None]]":
    """Shows how far a reading is, and notes it for Ctrl-C.

    Returns:
        What to call with each `Progress`, and with the document's name where there are several.
    """
    with progress.reading() as show:

        def on_progress(state: "Progress", document: str = "") -> None:
            stop.note(state, document)
            show(state, document)

        yield on_progress
