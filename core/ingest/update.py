"""Bringing a document up to date: which one a reading starts from, and what it may replace.

Only a document whose sources were read one by one (`units.py`) is brought up to date; any other
that is not what is wanted is refused. Decides, and changes nothing.
"""

import os

from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine
from longctx.core.ingest.identity import begun_with, changed_since
from longctx.core.ingest.job import Job
from longctx.core.ingest.resume import (
    begun_of,
    engine_for,
    other_reading,
    other_sources,
    read_otherwise,
    standing,
)
from longctx.core.ingest.units import BY_SOURCE
from longctx.core.sources.reader import Source
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest

NAMED = 3  # changed sources that an error names
_BY_FILE = (
    "Add --replace to read it once more, file by file, or give another --name. Later runs then "
    "read only what changed."
)
_AS_ONE = "Add --replace to read it once more as one text, or give another --name."


def engine_to_update(document: Document, engine: Engine, setup: Setup) -> Engine:
    """The engine to bring a document up to date: its own method, options, profile, number format.

    Args:
        document: read one source at a time.
        engine: what the setup gives for a new document.
        setup: the user's choices.

    Raises:
        UsageError: the user chooses a method or profile that is not the document's, or another
            number format.
        StateMismatch: the model is another one.
    """
    chosen = setup.profile or setup.method or setup.keep_kv or setup.kv_dtype
    why = read_otherwise(engine, document.manifest) if chosen else ""
    if why:
        raise UsageError(
            f"cannot bring '{document.manifest.name}' up to date in the way that is wanted",
            f"{why}, and its unchanged files stay as they were read",
            "Leave out --method, --profile, --keep-kv and --kv-dtype, give another --name, or add "
            "--replace to read everything anew.",
        )
    return engine_for(document, setup)


def require_replaceable(
    document: Document, job: Job, sources: list[Source], engine: Engine, units: str
) -> None:
    """Refuses to read over a document where reading its files one by one is asked for, or helps.

    Args:
        document: the finished one of the job's name, which is not brought up to date.
        job: does not say that the document may be replaced.
        sources: those of the job.
        engine: the reader.
        units: what the job reads as one text.

    Raises:
        UsageError: says how a folder that changes can be kept.
    """
    manifest = document.manifest
    what = f"the document '{manifest.name}' exists"
    if why := other_reading(engine, units, manifest):
        if units != manifest.units:
            raise UsageError(what, why, _BY_FILE if units == BY_SOURCE else _AS_ONE)
        return
    if any(os.path.isdir(path) for path in job.paths):
        raise UsageError(
            what,
            _changes(sources, manifest),
            "Give another name with --name, or --replace to read everything anew; with --replace "
            "--units each file is read by itself, and later runs read only what changed.",
        )


def _changes(sources: list[Source], manifest: Manifest) -> str:
    """How a folder differs from what was read of it."""
    if begun_with(sources, manifest) is None:
        return "its folder has other files now"
    changed = changed_since(manifest)
    if not changed:
        return "more files are named now, or some could not be read then"
    more = len(changed) - NAMED
    return ", ".join(changed[:NAMED]) + (f" and {more:,} more" * (more > 0)) + " changed since"


def is_outdated(store: Library, name: str, sources: list[Source], engine: Engine) -> bool:
    """Whether bringing a document up to date was begun with files that have changed again.

    What that had read is dropped: only changed files are read again.
    """
    begun = begun_of(store, name)
    if begun is None:
        return False
    return not other_reading(engine, BY_SOURCE, begun) and bool(other_sources(sources, begun))


def as_opened(store: Library, document: Document | None) -> Document | None:
    """The same document, if it is still the finished one; the caller keeps others from writing it.

    Raises:
        Locked: another process moves it.
    """
    now = document and standing(store, document.manifest.folder)
    return now if now and document and now.manifest == document.manifest else None
