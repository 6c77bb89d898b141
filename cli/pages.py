"""`--html`: results as one page, written when a command ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from longctx.cli import render

if TYPE_CHECKING:
    from longctx.core.report.answers import Shown


def option(what: str) -> Any:
    """The option `--html`.

    Args:
        what: what the page shows.
    """
    return typer.Option(
        "--html",
        metavar="FILE",
        show_default=False,
        help=f"Also write {what} as one HTML page, which loads nothing and runs no script; it "
        "replaces an older page of longctx, and no other file. By default none is written.",
    )


def require_writable(path: Path | None) -> None:
    """Refuses, before any work, a page that cannot be written.

    Raises:
        UsageError: it cannot, or another file is there.
    """
    if path is not None:
        from longctx.core.report.page import output

        output(path)


def write(path: Path, text: str) -> None:
    """Writes a page and says so.

    Raises:
        UsageError, LongctxError: it cannot be written.
    """
    from longctx.core.report import page

    page.write(path, text)
    render.note(f"page: {path}")


@contextmanager
def of_answers(path: Path | None) -> "Iterator[list[Shown] | None]":
    """A list for what a page shows of answers; written at the end, also of an interrupted run.

    Args:
        path: the page; None: none is wanted.

    Raises:
        UsageError, LongctxError: it cannot be written.
    """
    require_writable(path)
    if path is None:
        yield None
        return
    shown: list[Shown] = []
    try:
        yield shown
    finally:
        if shown:
            from longctx.core.report.answers import answers_page

            write(path, answers_page(shown))
