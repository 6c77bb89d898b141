"""Whether a stored document or checkpoint is the requested one, and how it is read on.

Decides, and changes nothing. A state is resumed, or called unchanged, only if model, method,
options, profile and every byte of the sources agree.
"""

import json
from dataclasses import asdict, replace
from typing import Any

from longctx.core.common.device import DTYPES, choose_dtype, dtype_name
from longctx.core.common.errors import NotFound, StateMismatch, UsageError
from longctx.core.engine.choice import Setup, recorded
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest.identity import begun_with, changed_since, skipped
from longctx.core.model.narrow import FULL
from longctx.core.sources.reader import Source
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import FINGERPRINT, UNITS, Manifest

# What a profile says about answers only; `reading` and `threshold` in older versions.
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


def standing(store: Library, name: str) -> Document | None:
    """The finished document in the folder of this name, if there is one that can be opened.

    Raises:
        Locked: another process is writing it.
    """
    if not store.is_there(name):  # an error would look for the nearest name among all documents
        return None
    try:
        return store.opened(name)
    except (NotFound, StateMismatch):
        return None


def is_unchanged(document: Document, sources: list[Source], engine: Engine, units: str) -> bool:
    """Whether a document holds exactly these sources, read this way."""
    manifest = document.manifest
    left_out = skipped(manifest)
    missed = any(left.get("text", True) for left in left_out) or manifest.report.get("lost")
    if missed or len(manifest.sources) + len(left_out) != len(sources):
        return False
    if difference(engine, sources, units, manifest):
        return False
    return all(source.path is not None for source in manifest.sources)


def difference(engine: Engine, sources: list[Source], units: str, manifest: Manifest) -> str:
    """Why a manifest does not describe (the beginning of) these sources read this way."""
    return other_reading(engine, units, manifest) or other_sources(sources, manifest)


def other_reading(engine: Engine, units: str, manifest: Manifest) -> str:
    """In what the reading that a manifest describes differs, whatever its sources; empty: nothing.

    Args:
        engine: the reader.
        units: what is read as one text, as a manifest says it.
        manifest: of a document or checkpoint.
    """
    if why := read_otherwise(engine, manifest):
        return why
    model = engine.files.fingerprint().as_dict()
    if any(manifest.model[part] != model[part] for part in FINGERPRINT):
        return f"it was read with another model, {manifest.model['name']}"
    if manifest.units != units:
        one = manifest.units == UNITS[0]
        return "its files were read as one text" if one else "each of its files was read by itself"
    return ""


def other_sources(sources: list[Source], manifest: Manifest) -> str:
    """Why a manifest does not describe (the beginning of) these sources; empty: it does."""
    if begun_with(sources, manifest) is None:
        return "it was read from other files"
    changed = changed_since(manifest)
    return f"{', '.join(changed)} changed since" if changed else ""


def read_otherwise(engine: Engine, manifest: Manifest) -> str:
    """Which of method, precision, options and profile a document was not read with; empty: none."""
    if manifest.method != engine.method_name:
        return "it was read with another method"
    if read_in_precision(manifest) != engine.precision:
        return f"it was read in another precision, {read_in_precision(manifest) or FULL}"
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


def read_in_precision(manifest: Manifest) -> str | None:
    """The precision of the products that a document was read with; None: its number format's."""
    found = manifest.recorded.get("precision")
    return found if isinstance(found, str) else None


def as_begun(
    store: Library, name: str, sources: list[Source], engine: Engine, units: str
) -> Engine:
    """The engine to resume a stopped reading: in its number format, unless one was named."""
    begun = begun_of(store, name)
    if begun is None:
        return engine
    own = read_in_dtype(begun)
    settled = engine.dtype_chosen or own == dtype_name(engine.dtype)
    if own is None or settled or difference(engine, sources, units, begun):
        return engine
    return told_dtype(replace(engine, dtype=DTYPES[own], _decoder=None, _reader=None))


def begun_of(store: Library, name: str) -> Manifest | None:
    """The manifest of a reading that was begun in folder `name`, if there is one."""
    try:
        return Manifest.read(store.path / "unfinished" / name)
    except StateMismatch:
        return None


def computed_otherwise(
    store: Library, name: str, sources: list[Source], engine: Engine, units: str
) -> str:
    """Why a stopped reading is begun anew: other kernels give other bits; empty: it goes on.

    A reading that goes on on another kind of device is not whole either, but that is chosen.
    """
    begun = begun_of(store, name)
    if begun is None:
        return ""
    own, now = begun.recorded, engine.recorded()
    same_place = str(own.get("device")).split(":")[0] == engine.device.split(":")[0]
    if own.get("kernels") == now.get("kernels") or not same_place:
        return ""
    if difference(engine, sources, units, begun):
        return ""
    before = own.get("kernels", "those of an older version")
    return (
        f"begun anew: its reading was begun with other kernels ({before}; now {now.get('kernels')})"
    )


def told_dtype(engine: Engine) -> Engine:
    """The same, with a note if its number format is not this device's default."""
    own, usual = engine.dtype, choose_dtype("auto", engine.device)
    if own == usual:
        return engine
    note = f"read on in {dtype_name(own)}, as it was begun; here {dtype_name(usual)} is usual"
    return replace(engine, notes=(*engine.notes, note))


def engine_for(document: Document, setup: Setup) -> Engine:
    """The engine to continue a document: its own method, options, profile, format and precision.

    Raises:
        UsageError: another number format or precision is requested, or cannot be had here.
        StateMismatch: the model is another one.
    """
    dtype = _own_dtype(document.manifest, setup.dtype)
    own = replace(setup, profile=None, method=None, keep_kv=False, kv_dtype=None, dtype=dtype)
    own = replace(own, precision=_own_precision(document.manifest, setup.precision))
    engine = prepare(own, recorded(document.manifest))
    document.require_model(engine.files.fingerprint().as_dict())
    return engine if dtype == setup.dtype else told_dtype(engine)


def _own_dtype(manifest: Manifest, wanted: str) -> str:
    """The number format in which a document was read; the requested one if it records none.

    Raises:
        UsageError: another one is requested.
    """
    own = read_in_dtype(manifest)
    if own is None:
        return wanted
    if wanted not in ("auto", own):
        raise UsageError(
            f"cannot read on '{manifest.name}' in {wanted}",
            f"it was read in {own}, and a document has one number format",
            f"Leave --dtype out, or read everything in {wanted} under another name.",
        )
    return own


def _own_precision(manifest: Manifest, wanted: str | None) -> str:
    """The precision in which a document was read.

    Raises:
        UsageError: another one is requested.
    """
    own = read_in_precision(manifest) or FULL
    if wanted not in (None, own):
        raise UsageError(
            f"cannot read on '{manifest.name}' with --precision {wanted}",
            f"it was read with --precision {own}, and a document has one precision",
            "Leave --precision out, or read everything anew under another name.",
        )
    return own


def _reading_part(profile: dict[str, Any] | str) -> dict[str, Any]:
    """A profile without what only affects how an answer is sampled and decoded."""
    fields = profile.items() if isinstance(profile, dict) else ()
    return {key: value for key, value in fields if key not in OF_ANSWERS}
