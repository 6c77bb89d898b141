"""`longctx rm`: deletes documents."""

from typing import Annotated

import typer

from longctx.cli import interface, options, render
from longctx.core.common.errors import UsageError

EXAMPLES = """\
  longctx rm book
  longctx rm book --yes
  longctx rm book novel letters
"""


def run(
    names: options.DocumentNames,
    yes: Annotated[bool, options.flag("--yes", "Delete without asking; off by default.")] = False,
    library: options.LibraryDir = None,
) -> None:
    """Deletes documents, finished or not.

    If one of them is not there or in use, none is deleted. The source files stay. Asks first;
    without a terminal, --yes is required.
    """
    opened = interface.listed(library)
    folders = [*dict.fromkeys(opened.folder_named(name) for name in names)]
    known = {document.folder: document.name for document in opened}
    called = [known.get(folder, folder) for folder in folders]
    # Where a deletion was cut off there is nothing more to lose.
    if not yes and {*folders} <= {*known} and not _agreed(called):
        raise typer.Exit(1)
    opened.remove(*folders)
    for name in called:
        render.note(f"deleted {name}")


def _agreed(names: list[str]) -> bool:
    quoted = ", ".join(f"'{name}'" for name in names)
    what = f"document {quoted}" if len(names) == 1 else f"{len(names)} documents {quoted}"
    if not render.can_ask():
        verb = "was" if len(names) == 1 else "were"
        raise UsageError(
            f"{what} {verb} not deleted", "there is no terminal to ask at", "Add --yes."
        )
    return render.confirm(f"Delete {what}?")
