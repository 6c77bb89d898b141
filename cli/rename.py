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
        typer.Argument(metavar="NEW", help="Its new name, or a title in any script."),
    ],
    library: options.LibraryDir = None,
) -> None:
    """Gives a document another name.

    A name is 1 to 100 English letters, digits, . _ or -. Anything else becomes the title of the
    document, and its name is made from it. The document must be complete and not in use, and no
    other may have the new name.
    """
    from longctx.core.store.library import Library
    from longctx.core.store.naming import called

    name, title = called(new)
    Library.open(library_path(library)).rename(old, name, title)
    render.note(f"renamed {old} to {f'{name} ({title})' if title else name}")
