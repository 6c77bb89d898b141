"""`longctx show`: everything recorded about one document."""

from typing import TYPE_CHECKING, Any

from longctx.cli import options, render
from longctx.cli.list import moment, sizes, status, summaries, summary
from longctx.cli.settings import library_path
from longctx.cli.text import size

if TYPE_CHECKING:
    from longctx.core.store.library import Library
    from longctx.core.store.manifest import Manifest

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
    from longctx.core.store.library import Library

    documents = Library.open(library_path(library))
    manifest = _manifest(documents, name)
    listed = [told for told in summaries(documents) if told["name"] == manifest.name]
    told = listed[0] if listed else summary(manifest)
    if not render.result(_details(manifest, told), json):
        render.facts(_facts(manifest, told))


def _manifest(library: "Library", name: str) -> "Manifest":
    """The manifest of a document, even if unfinished or damaged.

    Raises:
        NotFound: there is none of this name.
    """
    known = {manifest.folder: manifest for manifest in reversed(library.documents())}
    name = library.folder_named(name)
    return known[name] if name in known else library.document(name).manifest


def _details(manifest: "Manifest", told: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **told,
        "format": manifest.format,
        "units": manifest.units,
        "sources": [asdict(source) for source in manifest.sources],
        "fingerprint": manifest.model,
        "options": manifest.options,
        "profile": manifest.profile,
        "recorded": manifest.recorded,
        "report": manifest.report,
        "files": [{"file": shard.file, "bytes": shard.size} for shard in manifest.shards],
    }


def _facts(manifest: "Manifest", told: dict[str, Any]) -> list[tuple[str, str]]:
    sources = [
        f"{render.one_line(source.name)}: {source.tokens:,} tokens, {size(source.size)}, "
        f"{source.encoding}"
        for source in manifest.sources
    ]
    return [
        ("name", manifest.name),
        *([("folder", manifest.folder)] if manifest.title else ()),
        ("status", told["error"] or status(told)),
        ("saved", moment(told.get("saved"))),
        ("tokens", f"{manifest.tokens:,}"),
        ("sources", "\n".join(sources)),
        ("model", told["model"]),
        ("method", manifest.method),
        ("options", _pairs(manifest.options)),
        ("read with", _pairs(manifest.recorded)),
        (
            "state",
            f"{sizes(told)} in {len(manifest.shards)} files, format {manifest.format}",
        ),
    ]


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
