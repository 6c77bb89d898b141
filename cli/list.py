"""`longctx list`: the documents of a library."""

from typing import TYPE_CHECKING, Any

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.cli.text import counted, size

if TYPE_CHECKING:
    from longctx.core.store.manifest import Manifest

EXAMPLES = """\
  longctx list
  longctx list --json | jq -r '.documents[].name'
"""


def run(library: options.LibraryDir = None, json: options.Json = False) -> None:
    """Lists the documents of a library.

    Shows tokens, size of the text, method, model, status and size on disk of each, and its title
    where it differs from the name; the size of all on disk goes to standard error.
    """
    from longctx.core.store.library import Library

    place = library_path(library)
    documents = [summary(manifest) for manifest in Library.open(place).documents()]
    total = sum(document["state_bytes"] for document in documents)
    values = {"path": str(place), "state_bytes": total, "documents": documents}
    if render.result(values, json):
        return
    titled = any(document["title"] != document["name"] for document in documents)
    rows = [
        (
            document["name"],
            *([document["title"]] if titled else ()),
            f"{document['tokens']:,}",
            size(document["bytes"]),
            document["method"],
            document["model"],
            status(document),
            size(document["state_bytes"]),
        )
        for document in documents
    ]
    titles = ("title",) if titled else ()
    headers = ("name", *titles, "tokens", "text", "method", "model", "status", "state")
    render.table(headers, rows, right=("tokens", "text", "state"))
    render.note(f"{counted(len(documents), 'document')}, {size(total)} in '{place}'")


def summary(manifest: "Manifest") -> dict[str, Any]:
    """What a list shows of a document; `bytes` is its text's size, `state_bytes` that on disk."""
    return {
        "name": manifest.name,
        "title": manifest.shown,
        "tokens": manifest.tokens,
        "bytes": sum(source.size for source in manifest.sources),
        "method": manifest.method,
        "model": manifest.model.get("name", ""),
        "status": manifest.status,
        "state_bytes": manifest.size,
        "error": manifest.report["error"] if manifest.status == "damaged" else None,
    }


def status(told: dict[str, Any]) -> str:
    """The status in a summary, with the progress of an incomplete reading."""
    read = f" ({told['tokens']:,} tokens so far)" if told["status"] == "reading" else ""
    return f"{told['status']}{read}"
