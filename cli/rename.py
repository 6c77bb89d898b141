"""`longctx rename`: gives a document another name."""

from typing import Annotated

import typer

from longctx.cli import completion, options, render
from longctx.cli.settings import library_path

EXAMPLES = """\
  longctx rename book novel
  longctx rename book "Война и мир"
"""


def run(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="The document, as `list` names it.",
            autocompletion=completion.documents,
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", help="Its new name, in any script."),
    ],
    library: options.LibraryDir = None,
) -> None:
    """Gives a document another name.

    A name may be in any script. The document must be complete and not in use, and no other may have
    the new name.
    """
    from longctx.core.store.library import Library
    from longctx.core.store.naming import shown

    Library.open(library_path(library)).rename(old, new)
    render.note(f"renamed {shown(old)} to {new}")
