"""`longctx model list`: the models on this computer that have names of their own."""

from typing import TYPE_CHECKING

from longctx.cli import options, render
from longctx.cli.text import size
from longctx.core.common import pasting

if TYPE_CHECKING:
    from longctx.core.model.shelf import Shelved

EXAMPLES = """\
  longctx model list
  longctx model list --json | jq -r '.models[].name'
"""


def run(json: options.Json = False) -> None:
    """Lists the package's models and converted GGUF files.

    With their licence, the size of what is kept in the user's cache, and where their weights are.
    Folders and models of the hub that documents were read with are in `longctx list`.
    """
    from longctx.core.api.defaults import usual_model
    from longctx.core.model.shelf import shelved

    models, usual = shelved(), usual_model()
    values = {"default_model": usual, "models": [model.as_dict() for model in models]}
    if render.result(values, json):
        return
    rows = [
        (
            model.name,
            model.status,
            f"{model.parameters / 1e6:.1f}M" if model.parameters else "",
            model.licence or "",
            size(model.bytes) if model.bytes else "",
            _kept(model),
            model.path or "",
        )
        for model in models
    ]
    render.table(("name", "status", "parameters", "licence", "size", "kept", "weights"), rows)
    render.note(f"by default {usual} reads new documents")
    for model in models:
        if model.kept and model.status == "absent":
            told = pasting.word(model.name, "NAME")
            render.note(
                f"the weights of {told} are gone; `longctx model rm {told}` removes what is kept"
            )


def _kept(model: "Shelved") -> str:
    """The size of what is in the cache, with the number formats that were converted."""
    formats = ", ".join(kept.dtype for kept in model.kept)
    shown = size(model.kept_bytes) if model.kept_bytes else ""
    return f"{shown} ({formats})" if formats else shown
