"""`longctx upgrade`: upgrades documents of an older format to the current one."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import completion, options, render
from longctx.cli.settings import library_path
from longctx.cli.text import size
from longctx.cli.verify import leave

if TYPE_CHECKING:
    from longctx.core.store.upgrade import Upgraded

EXAMPLES = """\
  longctx upgrade
  longctx upgrade book
"""


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            autocompletion=completion.documents,
            help="Documents, as `list` names them; by default all of the library.",
        ),
    ] = None,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Upgrades documents of an older format.

    Writes their word index, so that searches need not count words; nothing is run through a model
    again. A missing or damaged index is written again. A document can be asked before and after,
    and stays unchanged if this is stopped. Prints one line for each; all are tried. Exits with 13
    if any is damaged, else with 11 if any is in use.
    """
    from longctx.core.retrieve.word_tables import word_tables
    from longctx.core.store.library import Library
    from longctx.core.store.upgrade import upgrade

    found: list[Upgraded] = []
    for done in upgrade(Library.open(library_path(library)), word_tables, names or ()):
        found.append(done)
        if not json:
            render.line(_told(done))
    values = {"documents": [asdict(done) for done in found]}
    if not render.result(values, json) and not found:
        render.note("no documents")
    leave({done.status for done in found})


def _told(done: "Upgraded") -> str:
    if done.error:
        return f"{done.name}: {done.status}: {done.error}"
    from longctx.core.store.manifest import FORMAT

    was = ""
    if done.status == "upgraded":
        again = done.format == FORMAT
        was = ", its word index is written again" if again else f" from format {done.format}"
    return f"{done.name}: {done.status}{was}, {size(done.bytes)}"
