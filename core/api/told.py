"""What is said of a document: the objects of `longctx list --json` and `longctx show --json`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longctx.core.store.manifest import Manifest


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


def details(manifest: "Manifest", told: dict[str, Any]) -> dict[str, Any]:
    """All that is recorded of a document.

    Args:
        manifest: the document's.
        told: its summary, and what else is known of it.
    """
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
