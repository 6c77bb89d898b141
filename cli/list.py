"""`longctx list`: the documents of a library."""

from typing import TYPE_CHECKING, Any

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.manifest import Manifest

EXAMPLES = """\
  longctx list
  longctx list --json | jq -r '.documents[].name'
"""


def run(library: options.LibraryDir = None, json: options.Json = False) -> None:
    """Lists the documents of a library.

    With tokens, size of the text, method, model, status and size on disk of each.
    """
    from longctx.core.store import Library

    documents = [summary(manifest) for manifest in Library.open(library_path(library)).documents()]
    if json:
        render.print_json({"documents": documents})
        return
    rows = [
        (
            document["name"],
            f"{document['tokens']:,}",
            size(document["bytes"]),
            document["method"],
            document["model"],
            document["status"],
            size(document["state_bytes"]),
        )
        for document in documents
    ]
    headers = ("name", "tokens", "text", "method", "model", "status", "state")
    render.table(headers, rows, right=("tokens", "text", "state"))


def summary(manifest: "Manifest") -> dict[str, Any]:
    """What a list tells of a document; `bytes` is its text, `state_bytes` what it takes on disk."""
    return {
        "name": manifest.name,
        "tokens": manifest.tokens,
        "bytes": sum(source.size for source in manifest.sources),
        "method": manifest.method,
        "model": manifest.model.get("name", ""),
        "status": manifest.status,
        "state_bytes": manifest.size,
        "error": manifest.report.get("error"),
    }
