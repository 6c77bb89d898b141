"""Whether a stored document or checkpoint is the requested one: same text, read the same way.

Decides, and changes nothing. A state is resumed, or called unchanged, only if model, method,
options, profile and every byte of the sources agree.
"""

import json
from dataclasses import asdict, replace
from typing import Any

from longctx.core.common.device import DTYPES, choose_dtype, dtype_name
from longctx.core.common.errors import NotFound, StateMismatch
from longctx.core.engine.setup import Engine
from longctx.core.ingest.identity import begun_with, changed_since, skipped
from longctx.core.sources.reader import Source
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import FINGERPRINT, Manifest

# What a profile says about answers only; `threshold` in older versions.
OF_ANSWERS = ("sampling", "decode", "decoding", "gather_by", "reading", "threshold")


def header(engine: Engine) -> dict[str, object]:
    """What a manifest says about model and method, whatever the document."""
    return {
        "model": engine.files.fingerprint().as_dict(),
        "recorded": engine.recorded(),
        "method": engine.method_name,
        "options": asdict(engine.options),
        "profile": asdict(engine.profile),
    }


def unchanged(store: Library, name: str, sources: list[Source], engine: Engine) -> Document | None:
    """The finished document of this name, if it holds exactly these sources, read this way.

    Raises:
        Locked: another process is writing it.
    """
    try:
        document = store.document(name)
    except (NotFound, StateMismatch):
        return None
    manifest = document.manifest
    left_out = skipped(manifest)
    missed = any(left.get("text", True) for left in left_out) or manifest.report.get("lost")
    if missed or len(manifest.sources) + len(left_out) != len(sources):
        return None
    if difference(engine, sources, manifest):
        return None
    streams = any(source.path is None for source in manifest.sources)
    return None if streams else document


def difference(engine: Engine, sources: list[Source], manifest: Manifest) -> str:
    """Why a manifest does not describe (the beginning of) these sources read this way."""
    if why := read_otherwise(engine, manifest):
        return why
    model = engine.files.fingerprint().as_dict()
    if any(manifest.model[part] != model[part] for part in FINGERPRINT):
        return f"it was read with another model, {manifest.model['name']}"
    if begun_with(sources, manifest) is None:
        return "it was read from other files"
    changed = changed_since(manifest)
    return f"{', '.join(changed)} changed since" if changed else ""


def read_otherwise(engine: Engine, manifest: Manifest) -> str:
    """Which of method, options and profile a document was not read with; empty: all agree."""
    if manifest.method != engine.method_name:
        return "it was read with another method"
    options, profile = json.loads(json.dumps([asdict(engine.options), asdict(engine.profile)]))
    if manifest.options != options:
        return "it was read with another option"
    if _reading_part(manifest.profile) != _reading_part(profile):
        return "it was read with another profile"
    return ""


def read_in_dtype(manifest: Manifest) -> str | None:
    """The number format in which a document was read; None if it names no known one."""
    dtype = manifest.recorded.get("dtype")
    return dtype if isinstance(dtype, str) and dtype in DTYPES else None


def as_begun(store: Library, name: str, sources: list[Source], engine: Engine) -> Engine:
    """The engine to resume a stopped reading: in its number format, unless one was named."""
    try:
        begun = Manifest.read(store.path / "unfinished" / name)
    except StateMismatch:
        return engine
    own = read_in_dtype(begun)
    settled = engine.dtype_chosen or own == dtype_name(engine.dtype)
    if own is None or settled or difference(engine, sources, begun):
        return engine
    return told_dtype(replace(engine, dtype=DTYPES[own], _decoder=None))


def told_dtype(engine: Engine) -> Engine:
    """The same, with a note if its number format is not this device's default."""
    own, usual = engine.dtype, choose_dtype("auto", engine.device)
    if own == usual:
        return engine
    note = f"read on in {dtype_name(own)}, as it was begun; here {dtype_name(usual)} is usual"
    return replace(engine, notes=(*engine.notes, note))


def _reading_part(profile: dict[str, Any] | str) -> dict[str, Any]:
    """A profile without what only affects how an answer is sampled and decoded."""
    fields = profile.items() if isinstance(profile, dict) else ()
    return {key: value for key, value in fields if key not in OF_ANSWERS}
