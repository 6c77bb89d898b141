"""`longctx verify`: checks that documents are what was written."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import completion, options, progress, render
from longctx.cli.settings import library_path
from longctx.cli.text import size
from longctx.core.errors import Locked, StateMismatch

if TYPE_CHECKING:
    from longctx.core.store.verify import Verified

EXAMPLES = """\
  longctx verify
  longctx verify book
  longctx verify --json | jq -r '.documents[] | select(.status != "ok") | .name'
"""


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            autocompletion=completion.documents,
            help="The document, as `list` names it; by default all of the library.",
        ),
    ] = None,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Checks that documents are what was written.

    Reads every block of every file and compares its checksum, then unpacks the text and compares
    it with what the sources were when they were read. Also checks what is kept of readings that
    were stopped. A line tells of each document; all are checked, whatever is wrong with one. Leaves
    with 13 if any is damaged, else with 11 if any is being written and could not be checked.
    """
    from longctx.core.store.library import Library
    from longctx.core.store.verify import verify

    found: list[Verified] = []
    with progress.ByteProgress() as shown:
        for checked in verify(Library.open(library_path(library)), name, shown.tell):
            found.append(checked)
            if not json:
                shown.hide()
                render.line(_told(checked))
    values = {"documents": [asdict(checked) for checked in found]}
    if not render.result(values, json) and not found:
        render.note("no documents")
    leave({checked.status for checked in found})


def _told(checked: "Verified") -> str:
    name = f"{checked.name} (unfinished)" if checked.unfinished else checked.name
    if checked.error:
        return f"{name}: {checked.status}: {checked.error}"
    return f"{name}: {checked.status}, {size(checked.bytes)}"


def leave(statuses: set[str]) -> None:
    """Leaves with the exit code of the worst.

    Raises:
        typer.Exit: unless all are ok.
    """
    for status, error in (("damaged", StateMismatch), ("locked", Locked)):
        if status in statuses:
            raise typer.Exit(error.exit_code)
