"""The Python interface as a command uses it: a quiet process, notes at the terminal.

Imports nothing of core at module level that is not wanted before a command runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from longctx.cli import render
from longctx.cli.loading import silence
from longctx.cli.settings import library_path
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.api.document import Document
    from longctx.core.api.documents import Documents
    from longctx.core.api.library import Library

GIVEN = "COMMANDLINE"  # the origin of a value typed for this run


@contextmanager
def opened(path: Path | None, model: str | None = None, **choices: Any) -> "Iterator[Library]":
    """A library for the time of a command.

    Args:
        path: its folder, as the user names it; None: the usual one.
        model: the model, as the user names it.
        **choices: further arguments of `Model`.
    """
    from longctx.core.api.library import Library
    from longctx.core.api.model import Model

    silence(model, choices.get("answers"))
    with (
        Model(model, **choices) as named,
        Library(library_path(path), named, on_note=render.note) as library,
    ):
        yield library


def listed(path: Path | None) -> "Library":
    """A library of which no document is opened; whoever asks for documents hears if it is none."""
    from longctx.core.api.library import Library

    return Library(library_path(path), on_note=render.note).require()


def choose(
    context: typer.Context,
    library: "Library",
    docs: list[str] | None,
    everything: bool,
    partial: bool,
    max_docs: int,
) -> "Document | Documents":
    """The document that the user named, or the latest; or several, if several are requested.

    Takes no time, so that a wrong name is reported before a model is loaded.

    Args:
        context: knows whether `docs` were typed, or are a setting, which --all overrides.
        library: where they are.
        docs: names; none: the latest.
        everything: all documents of the library.
        partial: for an unfinished document, use what its last checkpoint holds.
        max_docs: of several, the most that a question is encoded for.

    Raises:
        LongctxError: there is no such library or document, or it is damaged or was read with
            another model.
    """
    source = context.get_parameter_source("docs")
    if everything and docs and source is not None and source.name == GIVEN:
        raise UsageError("cannot take both --doc and --all", "", "Give one of them.")
    names = () if everything else docs or ()
    if everything or names:
        return library.together(*names, partial=partial, max_docs=max_docs)
    return library.document(partial=partial)
