"""`longctx show`: everything recorded about one document."""

from typing import Any

from longctx.cli import interface, options, render
from longctx.cli.list import moment, sizes, status
from longctx.cli.text import counted, size

EXAMPLES = """\
  longctx show book
  longctx show book --json
"""


def run(
    name: options.DocumentName,
    library: options.LibraryDir = None,
    json: options.Json = False,
) -> None:
    """Shows what is recorded of a document.

    Its sources, the model and method that read it, and its size on disk.
    """
    document = interface.listed(library)[name]
    told = document.as_dict()
    if not render.result(told, json):
        render.facts(facts(document.folder, told))


def facts(folder: str, told: dict[str, Any]) -> list[tuple[str, str]]:
    """What is recorded of a document, for people.

    Args:
        folder: the name of its folder.
        told: `Document.as_dict`.
    """
    sources = [
        f"{render.one_line(source['name'])}: {source['tokens']:,} tokens, {size(source['size'])}, "
        f"{source['encoding']}"
        for source in told["sources"]
    ]
    return [
        ("name", told["name"]),
        *([("folder", folder)] if folder != told["name"] else ()),
        ("status", told["error"] or status(told)),
        ("saved", moment(told.get("saved"))),
        ("tokens", f"{told['tokens']:,}"),
        ("sources", "\n".join(sources)),
        ("model", told["model"]),
        ("method", told["method"]),
        ("options", _pairs(told["options"])),
        ("read with", _pairs(told["recorded"])),
        (
            "state",
            f"{sizes(told)} in {counted(len(told['files']), 'file')}, format {told['format']}",
        ),
    ]


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
