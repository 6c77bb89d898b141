"""`longctx list`: the documents of a library."""

from datetime import datetime
from typing import Any

from longctx.cli import interface, options, render
from longctx.cli.text import counted, size

SHOWN = {"kv": "keys and values", "words": "word index"}  # parts that people call otherwise
EXAMPLES = """\
  longctx list
  longctx list --json | jq -r '.documents[].name'
"""


def run(library: options.LibraryDir = None, json: options.Json = False) -> None:
    """Lists the documents of a library.

    Shows tokens, size of the text, method, model, status, date and size on disk of each. The
    default is the document that is asked where none is named. The size of all on disk, and of its
    parts, goes to standard error.
    """
    opened = interface.listed(library)
    documents = opened.summaries()
    values = {"path": str(opened.path), **_total(documents), "documents": documents}
    if render.result(values, json):
        return
    rows = [
        (
            document["name"],
            f"{document['tokens']:,}",
            size(document["bytes"]),
            document["method"],
            document["model"],
            status(document),
            moment(document["saved"]),
            size(document["state_bytes"]),
        )
        for document in documents
    ]
    headers = ("name", "tokens", "text", "method", "model", "status", "saved", "state")
    render.table(headers, rows, right=("tokens", "text", "state"))
    render.note(f"{counted(len(documents), 'document')}, {sizes(values)} in '{opened.path}'")


def _total(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The sizes of all documents together."""
    parts: dict[str, int] = {}
    for document in documents:
        for part, count in document["parts"].items():
            parts[part] = parts.get(part, 0) + count
    return {
        "bytes": sum(document["bytes"] for document in documents),
        "state_bytes": sum(document["state_bytes"] for document in documents),
        "parts": parts,
    }


def status(told: dict[str, Any]) -> str:
    """The status in a summary, with the progress of an incomplete reading."""
    read = f" ({told['tokens']:,} tokens so far)" if told["status"] == "reading" else ""
    if told.get("encoded") is not None:
        read = f" ({told['encoded'] / max(told['tokens'], 1):.0%} encoded)"
    return f"{told['status']}{read}{', default' if told.get('default') else ''}"


def sizes(told: dict[str, Any]) -> str:
    """The size on disk, how often the text's that is, and the parts, the largest first."""
    total, text = size(told["state_bytes"]), told["bytes"]
    if not text:
        return total
    parts = sorted(told["parts"].items(), key=lambda part: -part[1])
    named = ", ".join(f"{SHOWN.get(part, part)} {size(count)}" for part, count in parts)
    return f"{total}, {told['state_bytes'] / text:.1f} times the text ({named})"


def moment(iso: str | None) -> str:
    """A moment in the local time."""
    return f"{datetime.fromisoformat(iso).astimezone():%Y-%m-%d %H:%M}" if iso else ""
