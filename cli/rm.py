"""`longctx rm`: deletes a document."""

from typing import TYPE_CHECKING, Annotated

import typer

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.store.library import Library

EXAMPLES = """\
  longctx rm book
  longctx rm book --yes
"""


def run(
    name: options.DocumentName,
    yes: Annotated[bool, options.flag("--yes", "Delete without asking; off by default.")] = False,
    library: options.LibraryDir = None,
) -> None:
    """Deletes a document, finished or not.

    The source files stay. Asks first; without a terminal, --yes is required.
    """
    from longctx.core.store.library import Library

    documents = Library.open(library_path(library))
    name = documents.name_of(name)
    if not yes and not _agreed(name, documents):
        raise typer.Exit(1)
    documents.remove(name)
    render.note(f"deleted {name}")


def _agreed(name: str, documents: "Library") -> bool:
    if all(manifest.name != name for manifest in documents.documents()):
        return True  # nothing to lose; the library has the message for it
    if not render.can_ask():
        raise UsageError(
            f"document '{name}' was not deleted", "there is no terminal to ask at", "Add --yes."
        )
    return render.confirm(f"Delete document '{name}'?")
