"""`longctx export`: writes a document to one file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from longctx.cli import options, progress, render, standard_output
from longctx.cli.run import current
from longctx.cli.settings import library_path
from longctx.cli.text import size
from longctx.core.common.errors import UsageError
from longctx.core.common.outputs import STANDARD, Output

EXAMPLES = """\
  longctx export book book.longctx
  longctx export book - | ssh laptop longctx import - --name book
"""


def run(
    name: options.DocumentName,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File to write, such as book.longctx; `-` is standard output."
        ),
    ],
    replace: Annotated[
        bool, options.flag("--replace", "Replace an existing file; off by default.")
    ] = False,
    library: options.LibraryDir = None,
) -> None:
    """Writes a document to one file.

    `longctx import` restores the document from it, on any machine. The file is a plain tar of the
    document's files, with their checksums in the first one. Everything is checked, so nothing
    damaged is exported, and the file gets its name only when it is complete. The same document
    always gives the same bytes.
    """
    from longctx.core.store.archive import export, sound
    from longctx.core.store.library import Library

    store = Library.open(library_path(library))
    with (
        store.reading(store.folder_named(name)) as document,
        _target(file, replace) as out,
        progress.ByteProgress() as shown,
    ):
        manifest = sound(document)
        if manifest.has_words != document.manifest.has_words:
            render.note("its word index is damaged and left out")
        if manifest.has_vectors != document.manifest.has_vectors:
            render.note("its index of vectors is damaged and left out")
        written = export(document, out, shown.tell, manifest)
    render.note(f"{name}: {size(written)} written to {'standard output' if file == '-' else file}")


@contextmanager
def _target(file: str, replace: bool) -> Iterator[IO[bytes]]:
    """The file to write to.

    Raises:
        UsageError: standard output is a terminal or already in use, or the file cannot be written.
    """
    path = Path(os.path.expanduser(file))
    if file != "-":
        path = path.absolute() if path == STANDARD else path  # "./-" is a file
        with Output(path).whole(replace) as out:
            yield out
        return
    if standard_output.is_terminal():
        raise UsageError(
            "cannot write a document to the terminal", remedy="Name a file, or add a pipe."
        )
    with standard_output.given_to("FILE -", current()), Output(STANDARD).whole() as out:
        yield out
