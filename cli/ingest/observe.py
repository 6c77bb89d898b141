"""Observes a reading: its progress is shown, and kept for the message on Ctrl-C."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from longctx.cli import progress, render
from longctx.cli.ingest.results import show_one_of_many, summary

if TYPE_CHECKING:
    from pathlib import Path

    from longctx.cli.ingest.stop import Stop
    from longctx.core.ingest.ingest import Ingested, Progress
    from longctx.core.ingest.job import Job, Observer
    from longctx.core.ingest.many import Each, Failed


def read(how: "Callable[[Job, Observer], Ingested]", job: "Job", stop: "Stop") -> "Ingested":
    """Reads sources into one document, new or appended to."""
    with _observed(stop) as observer:
        return how(job, observer)


def read_each(job: "Job", stop: "Stop", json: bool) -> "Each":
    """Makes a document of every file; prints a line for each unless the result is JSON."""
    from longctx.core.ingest import many

    def on_done(done: "Ingested | Failed") -> None:
        stop.note_done()
        if not json:
            show_one_of_many(done)

    stop.many = many.Each()
    with _observed(stop, done=on_done) as observer:
        return many.read_each(job, observer, stop.many)


def follow(job: "Job", stop: "Stop", as_wanted: bool) -> "Ingested":
    """Follows a file until Ctrl-C or `kill`, which is the normal end, with exit code 0.

    Args:
        as_wanted: an existing document must have been read as the setup says.

    Returns:
        The last whole state.
    """
    from longctx.core.common.errors import LongctxError
    from longctx.core.ingest.follow import follow
    from longctx.core.ingest.ingest import as_it_was
    from longctx.core.store.library import Library

    def on_step(done: "Ingested") -> None:
        stop.followed = replace(done, changed=[])  # it changes all the time
        render.note(summary(done))

    def on_wait(why: Exception) -> None:
        render.note(str(why))

    def on_empty(file: "Path") -> None:
        render.note(f"{render.one_line(str(file))} is empty yet; it is read when something comes")

    with suppress(LongctxError):  # following it reports the error
        stop.followed = as_it_was(Library.open(job.library).document(job.called))
    with _observed(stop, done=on_step, waits=on_wait, empty=on_empty) as observer:
        return replace(follow(job, observer, as_wanted), changed=[])


@contextmanager
def _observed(stop: "Stop", **hears: Callable[..., None]) -> "Iterator[Observer]":
    """Shows the progress of a reading, and notes it for Ctrl-C; a context manager.

    Args:
        stop: gets what to report on Ctrl-C.
        **hears: the other fields of the `Observer`.
    """
    from longctx.core.ingest.job import Observer

    with progress.reading() as show:

        def on_progress(state: "Progress", document: str = "") -> None:
            stop.note(state, document)
            show(state, document)

        yield Observer(on_progress, **hears)
