"""`longctx list`: the documents of a library."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from longctx.cli import options, render
from longctx.cli.settings import library_path
from longctx.cli.text import counted, size

if TYPE_CHECKING:
    from longctx.core.store.library import Library
    from longctx.core.store.manifest import Manifest

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
    from longctx.core.store.library import Library

    place = library_path(library)
    documents = summaries(Library.open(place))
    values = {"path": str(place), **_total(documents), "documents": documents}
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
    render.note(f"{counted(len(documents), 'document')}, {sizes(values)} in '{place}'")


def summaries(library: "Library") -> list[dict[str, Any]]:
    """What a list shows of each document, the complete ones first."""
    from longctx.core.common.errors import NotFound

    default = ""
    with suppress(NotFound):
        default = library.latest()
    told = []
    for manifest, saved in library.dated():
        is_default = manifest.folder == default
        default = "" if is_default else default  # not a replacement that is still being read
        told.append({**summary(manifest), "saved": _iso(saved), "default": is_default})
    return told


def summary(manifest: "Manifest") -> dict[str, Any]:
    """What a list shows of a document; `bytes` is its text's size, `state_bytes` that on disk."""
    return {
        "name": manifest.name,
        "title": manifest.name,
        "tokens": manifest.tokens,
        "bytes": sum(source.size for source in manifest.sources),
        "method": manifest.method,
        "model": manifest.model.get("name", ""),
        "status": manifest.status,
        "state_bytes": manifest.size,
        "parts": manifest.parts,
        "error": manifest.report["error"] if manifest.status == "damaged" else None,
    }


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


def _iso(ns: int) -> str | None:
    """A file's time in UTC; None: unknown."""
    return datetime.fromtimestamp(ns // 10**9, UTC).isoformat() if ns else None
