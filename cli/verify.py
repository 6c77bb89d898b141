"""`longctx verify`: checks that documents are what was written."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import completion, options, progress, render
from longctx.cli.settings import library_path
from longctx.cli.text import size
from longctx.core.common.errors import Locked, StateMismatch

if TYPE_CHECKING:
    from longctx.core.engine.model_check import Checked
    from longctx.core.store.library import Library
    from longctx.core.store.verify import Verified

EXAMPLES = """\
  longctx verify
  longctx verify book
  longctx verify --weights
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
    weights: Annotated[
        bool,
        options.flag(
            "--weights",
            "Also read all weights of the models that read the documents, and compare them with "
            "what was recorded; off by default.",
        ),
    ] = False,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Checks that documents are what was written.

    Reads every block of every file and compares its checksum, then unpacks the text and compares it
    with the checksums of its sources. Also checks the checkpoints of stopped readings. Prints one
    line for each document; all are checked, whatever is wrong with one. Exits with 13 if any is
    damaged, else with 11 if any is being written and could not be checked.

    With --weights, prints one line for each model, and exits with 13 if its weights have changed;
    models that are not on this computer are listed as unchecked. Other commands read weights in
    full only once, and again when size, times or inode of a file have changed.
    """
    from longctx.core.store.library import Library
    from longctx.core.store.verify import verify

    found: list[Verified] = []
    opened = Library.open(library_path(library))
    with progress.ByteProgress() as shown:
        for checked in verify(opened, name, shown.tell):
            found.append(checked)
            if not json:
                shown.hide()
                render.line(_told(checked))
    models = _check_models(opened, (checked.name for checked in found), json) if weights else []
    values: dict[str, Any] = {"documents": [asdict(checked) for checked in found]}
    if weights:
        values["models"] = [asdict(model) for model in models]
    if not render.result(values, json) and not found:
        render.note("no documents")
    leave({checked.status for checked in (*found, *models)})


def _check_models(library: "Library", names: Iterable[str], json: bool) -> "list[Checked]":
    """Checks the models of documents, and reports on each."""
    from longctx.cli.loading import go_offline
    from longctx.core.engine.model_check import check

    go_offline(None)
    found = []
    with progress.ByteProgress() as shown:
        for checked in check(library, names, shown.tell):
            found.append(checked)
            if not json:
                shown.hide()
                render.line(_told_of_model(checked))
    return found


def _told_of_model(checked: "Checked") -> str:
    what = f"model {checked.name}: {checked.status}"
    return f"{what}: {checked.error}" if checked.error else f"{what}, {size(checked.bytes)}"


def _told(checked: "Verified") -> str:
    name = f"{checked.name} (unfinished)" if checked.unfinished else checked.name
    if checked.error:
        return f"{name}: {checked.status}: {checked.error}"
    return f"{name}: {checked.status}, {size(checked.bytes)}"


def leave(statuses: set[str]) -> None:
    """Exits with the exit code of the worst.

    Raises:
        typer.Exit: unless all are ok.
    """
    ends = ("damaged", StateMismatch), ("changed", StateMismatch), ("locked", Locked)
    for status, error in ends:
        if status in statuses:
            raise typer.Exit(error.exit_code)
