"""What is said of a document: the objects of `longctx list --json` and `longctx show --json`."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from longctx.core.store.facts import Facts

if TYPE_CHECKING:
    from longctx.core.store.drafts import Encoded
    from longctx.core.store.manifest import Manifest

_NEVER = 253_370_764_800 * 10**9  # ns: the year 9999, the last of Python's, in any time zone


def summary(known: "Manifest | Facts") -> dict[str, Any]:
    """What a list shows of a document; `bytes` is its text's size, `state_bytes` that on disk."""
    facts = known if isinstance(known, Facts) else Facts.of(known)
    return {
        "name": facts.name,
        "title": facts.name,
        "tokens": facts.tokens,
        "bytes": facts.bytes,
        "method": facts.method,
        "model": facts.model.get("name", ""),
        "status": facts.status,
        "state_bytes": facts.size,
        "parts": facts.parts,
        "error": facts.error or None,
    }


def created(facts: Facts) -> datetime | None:
    """When a document was saved; None: unknown, or the file has a time that no calendar has."""
    return datetime.fromtimestamp(facts.saved // 10**9, UTC) if 0 < facts.saved < _NEVER else None


def listed(facts: Facts, how: "Encoded | None" = None) -> dict[str, Any]:
    """What `longctx list --json` says of a document, but for `default`.

    Args:
        facts: the document's.
        how: how far its encoding is; None: it is no draft.
    """
    told, saved = summary(facts), created(facts)
    told["saved"] = saved and saved.isoformat()
    told["encoded"] = how and how.done
    return told


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
        "language": manifest.language,
        "sources": [asdict(source) for source in manifest.sources],
        "fingerprint": manifest.model,
        "options": manifest.options,
        "profile": manifest.profile,
        "recorded": manifest.recorded,
        "report": manifest.report,
        "files": [{"file": shard.file, "bytes": shard.size} for shard in manifest.shards],
    }
