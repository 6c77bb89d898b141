"""Observes a reading: its progress is shown, and kept for the message on Ctrl-C."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longctx.cli import progress, render
from longctx.cli.ingest.results import show_one_of_many, summary

if TYPE_CHECKING:
    from pathlib import Path

    from longctx.cli.ingest.stop import Stop
    from longctx.core.api.library import Library
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.ingest.job import Progress
    from longctx.core.ingest.many import Each, Failed


def read(library: "Library", paths: list[str], stop: "Stop", **how: Any) -> "Ingested":
    """Reads sources into one document, new or appended to.

    Args:
        library: where it is.
        paths: the sources.
        stop: gets what to report on Ctrl-C.
        **how: further arguments of `Library.ingest`.
    """
    with _shown(stop) as on_progress:
        done = library.ingest(*paths, on_progress=on_progress, **how).ingested
    assert done is not None  # it was read here
    return done


def read_each(library: "Library", paths: list[str], stop: "Stop", json: bool, **how: Any) -> "Each":
    """Makes a document of every file; prints a line for each, of text or JSON.

    Args:
        library, paths, stop: as of `read`.
        json: lines are JSON objects.
        **how: further arguments of `Library.ingest_each`.
    """
    from longctx.core.ingest.many import Each

    def on_done(done: "Ingested | Failed") -> None:
        stop.note_done()
        show_one_of_many(done, json)

    stop.many, stop.by_cluster = Each(), how["ray"] is not None
    stop.by_others = stop.by_cluster or (how["workers"] or 1) > 1 or how["retry"] > 0
    with _shown(stop) as on_progress:
        return library.ingest_each(
            *paths, on_progress=on_progress, on_done=on_done, result=stop.many, **how
        )


def follow(library: "Library", paths: list[str], stop: "Stop", **how: Any) -> "Ingested":
    """Follows a file until Ctrl-C or `kill`, which is the normal end, with exit code 0.

    Args:
        library, paths, stop: as of `read`.
        **how: further arguments of `Library.follow`.

    Returns:
        The last whole state.
    """
    from longctx.core.common.errors import LongctxError

    def on_step(done: "Ingested") -> None:
        stop.followed = replace(done, changed=[])  # it changes all the time
        render.note(summary(done))

    def on_wait(why: Exception) -> None:
        render.note(str(why))

    def on_empty(file: "Path") -> None:
        render.note(f"{render.one_line(str(file))} is empty yet; it is read when something comes")

    with suppress(LongctxError):  # following it reports the error
        there = library.standing(*paths, name=how.get("name"))
        stop.followed = there and there.as_it_was()
    hears = {"on_step": on_step, "on_wait": on_wait, "on_empty": on_empty}
    with _shown(stop) as on_progress:
        return replace(library.follow(*paths, on_progress=on_progress, **hears, **how), changed=[])


@contextmanager
def _shown(stop: "Stop") -> "Iterator[Callable[..., None]]":
    """Shows the progress of a reading, and notes it for Ctrl-C; a context manager.

    Args:
        stop: gets what to report on Ctrl-C.
    """
    with progress.reading() as show:

        def on_progress(state: "Progress", document: str = "") -> None:
            stop.note(state, document)
            show(state, document)

        yield on_progress
