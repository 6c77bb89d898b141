"""`--answer-with`: what does not go with it, and what is said of what is sent."""

from typing import TYPE_CHECKING, Any

import typer

from longctx.cli import progress, render
from longctx.cli.interface import GIVEN
from longctx.cli.text import counted
from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.ask.server.messages import Sent

# What chooses a model here in its place, or what another server is not told.
_SAMPLING = ("top_k", "min_p", "repetition_penalty")
NOT_WITH_IT = ("answer_model", "answer_profile", "decode", "quote", *_SAMPLING)


def fitting(context: typer.Context) -> dict[str, Any]:
    """A command's options; where a server answers, without settings for models here.

    Raises:
        UsageError: such an option was typed for this run.
    """
    given = context.params
    if given["answer_with"] is None:
        return given
    for name in NOT_WITH_IT:
        source = context.get_parameter_source(name)
        if source is not None and source.name == GIVEN:
            what = f"cannot take both --answer-with and --{name.replace('_', '-')}"
            raise UsageError(what, "another server's model answers", "Give one of them.")
    return {name: None if name in NOT_WITH_IT else value for name, value in given.items()}


def tell(sent: "Sent") -> None:
    """Says what is about to leave this process, and where to."""
    progress.stop_drawing()
    names = len({passage.document for passage in sent.passages}) > 1
    places = ", ".join(
        f"{passage.document}: " * names
        + f"{render.one_line(passage.source)}:{passage.place} ({passage.characters:,})"
        for passage in sent.passages
    )
    key = f", with the key of {sent.key}" if sent.key else ""
    render.note(
        f"sends {counted(len(sent.passages), 'passage')} and the question, "
        f"{sent.characters:,} characters, to {sent.to} (model {sent.model}{key}): {places}"
    )
