"""`longctx import`: restores a document from one file into the library."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated

import typer

from longctx.cli import options, progress, render
from longctx.cli.settings import library_path
from longctx.cli.text import size
from longctx.core.common.errors import UsageError

EXAMPLES = """\
  longctx import book.longctx
  longctx import book.longctx --name novel
  ssh server longctx export book - | longctx import - --name book
"""


def run(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A file that `export` wrote; `-` is standard input."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            show_default=False,
            help="Name of the document, in any script; by default that of the file, without its "
            "ending.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        options.flag(
            "--replace",
            "Replace a document of this name, or a stopped reading; off by default.",
        ),
    ] = False,
    max_size: options.MaxSize = None,
    library: options.LibraryDir = None,
    shared: options.Shared = False,
    json: options.Json = False,
) -> None:
    """Takes a document that `longctx export` wrote into the library.

    The file is read as a stream and not trusted: everything is checked, and the document appears
    only when it is whole. A truncated, changed or malicious file is refused, and the library stays
    as it was.
    """
    from longctx.core.api.told import summary
    from longctx.core.common.units import parse_bytes
    from longctx.core.store.archive import receive

    limit = parse_bytes(max_size) if max_size else None
    chosen = _called(file, name)
    label = "standard input" if file == "-" else file
    with _source(file) as source, progress.ByteProgress() as shown:
        given = chosen, replace, limit, shown.tell, shared
        manifest = receive(library_path(library), source, label, *given)
    if not render.result(summary(manifest), json):
        state = size(manifest.size)
        render.line(f"{manifest.name}: imported, {manifest.tokens:,} tokens, state {state}")


def _called(file: str, name: str | None) -> str:
    """The document's name."""
    from longctx.core.store.naming import called_after, require_name

    if name is not None:
        return require_name(name)
    if file == "-":
        raise UsageError("the document needs a name", "standard input has none", "Add --name.")
    return called_after(file)


@contextmanager
def _source(file: str) -> Iterator[IO[bytes]]:
    """The file to read from.

    Raises:
        UsageError: the file cannot be opened, or standard input is a terminal.
    """
    if file == "-":
        if render.can_ask():
            raise UsageError(
                "cannot read a document from the terminal", remedy="Name a file, or add a pipe."
            )
        yield sys.stdin.buffer
        return
    try:
        opened = open(os.path.expanduser(file), "rb")  # noqa: SIM115 (closed below)
    except OSError as exc:
        raise UsageError(
            f"cannot open '{file}'", exc.strerror or "", "Name a file that `longctx export` wrote."
        ) from exc
    with opened:
        yield opened
