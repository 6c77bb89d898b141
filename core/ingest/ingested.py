"""What an ingest did, as its caller is told."""

from dataclasses import asdict, dataclass, field
from typing import Any

from longctx.core.store.document import Document

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Ingested:
    """What an ingest did.

    Attributes:
        name, title: the document's name, in any script, under two keys.
        status: complete, or unchanged if it already existed.
        tokens, reused_tokens: of the document; taken over from an earlier run or state.
        bytes, state_bytes: of the sources; of the state on disk.
        seconds, tokens_per_s: of the reading, without loading the model.
        checkpoint_s: of these seconds, those spent writing checkpoints.
        peak_memory: peak bytes on the device; None if unknown.
        undecodable: places whose bytes cannot be decoded in the source's encoding.
        forced_splits: places where text without line breaks was cut.
        sources: how many it has.
        reused_sources: how many of them were taken over from an earlier state, as they were.
        gone: names of those of the earlier state that are not there any more.
        skipped: why sources were left out, one message each.
        left_out: the same for non-text files in folders and archives.
        lost: messages about what is missing in the middle or at the end of sources.
        changed: names of sources that grew or were replaced while they were read.
        notes: decisions that differ from the profile.
    """

    name: str
    status: str
    tokens: int
    bytes: int
    state_bytes: int
    title: str = ""
    reused_tokens: int = 0
    seconds: float = 0.0
    tokens_per_s: float = 0.0
    checkpoint_s: float = 0.0
    peak_memory: int | None = None
    undecodable: int = 0
    forced_splits: int = 0
    sources: int = 1
    reused_sources: int = 0
    gone: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ingest`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def as_it_was(document: Document) -> Ingested:
    """The result if there was nothing to do."""
    return told(document, status="unchanged", reused_tokens=document.manifest.tokens)


def told(document: Document, **more: Any) -> Ingested:
    """The result for a document, with further fields."""
    manifest = document.manifest
    return Ingested(
        name=manifest.name,
        title=manifest.name,
        tokens=manifest.tokens,
        sources=len(manifest.sources),
        bytes=sum(source.size for source in manifest.sources),
        state_bytes=document.size(),
        **more,
    )
