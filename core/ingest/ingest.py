"""The first half of the pipeline: sources -> tokens -> encode -> store.

Reads a document once and leaves its state in a library; `core/ask/session.py` answers from it.
Nothing here depends on the method.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from longctx.core.common.errors import LongctxError
from longctx.core.common.telemetry import stage
from longctx.core.engine.choice import Setup
from longctx.core.engine.disk import expected_in_room
from longctx.core.engine.opening import make_again
from longctx.core.engine.setup import Engine, memory_told, prepare
from longctx.core.ingest.document_reading import DocumentReading
from longctx.core.ingest.draft import Drafting, wants_draft
from longctx.core.ingest.identity import CannotGoOn
from longctx.core.ingest.ingested import Ingested, as_it_was
from longctx.core.ingest.job import NOBODY, Job, Observer
from longctx.core.ingest.reading import SourceReading
from longctx.core.ingest.resume import (
    as_begun,
    begun_of,
    computed_otherwise,
    difference,
    header,
    is_unchanged,
    standing,
)
from longctx.core.ingest.units import BY_SOURCE, gone, kept_units, units_for
from longctx.core.ingest.update import (
    as_opened,
    engine_to_update,
    is_outdated,
    require_replaceable,
)
from longctx.core.ingest.vectors import encoder_for
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.space import require_size
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

_log = logging.getLogger(__name__)

OUT_OF_MEMORY = (
    "What was read until the last checkpoint, if there was one, is kept. Read with a profile of a "
    "smaller chunk or budget; --dry-run measures beforehand."
)


def ingest(
    library: Path,
    paths: list[str],
    setup: Setup,
    name: str | None = None,
    *,
    on_progress: Callable[..., None] = NOBODY.progress,
    **options: Any,
) -> Ingested:
    """Calls `read` with a `Job` of these fields and an observer of progress only."""
    return read(Job(library, paths, setup, name, **options), Observer(on_progress))


def read(job: Job, observer: Observer = NOBODY) -> Ingested:
    """Reads sources through a model once and keeps the state on disk.

    A stopped reading resumes from its last checkpoint.

    Raises:
        UsageError: a missing file, an unknown name, or an existing document with other content.
        UnreadableInput: no source could be read.
        Locked: another process is reading a document of this name.
        LongctxError: no room for the model or the state.
    """
    sources = open_sources(job.paths, job.rules, job.passing)
    engine = job.engine or prepare(job.setup)
    return read_sources(job, observer, engine, sources, job.called)


def read_sources(
    job: Job,
    observer: Observer,
    engine: Engine,
    sources: list[Source],
    called: str,
) -> Ingested:
    """As `read`, but with opened sources and an engine that may be used again.

    A document whose sources were read one by one is brought up to date: unchanged ones are taken
    over.

    Args:
        called: the document's name.
    """
    units_for(job, engine.method_name)  # refused before anything is made
    store = Library.open(job.library, create=True)
    name, title = store.place_for(called)
    settled = store.settle(name)
    known = standing(store, name) if settled or not job.replace else None
    before = None if job.replace else known.manifest if known else begun_of(store, name)
    units = units_for(job, engine.method_name, before)
    old = known if before and known and units == known.manifest.units == BY_SOURCE else None
    engine = engine_to_update(old, engine, job.setup) if old else engine
    if known and is_unchanged(known, sources, engine, units):
        _log.info("%s is there already, of the same sources and settings", called)
        return as_it_was(known)
    if known and not old and not job.replace:
        require_replaceable(known, job, sources, engine, units)
    engine = as_begun(store, name, sources, engine, units)
    encoder = encoder_for(job, before)
    drafts = not store.is_finished(name) and wants_draft(sources, engine.device)
    more = {"vectors": bool(encoder), "draft": drafts}
    expected = expected_in_room(store, name, engine, sources, job.max_size, **more)
    differs = partial(difference, engine, sources, units)
    anew = job.replace or (bool(old) and is_outdated(store, name, sources, engine))
    if why := computed_otherwise(store, name, sources, engine, units):
        anew, differs = True, lambda begun: why
        engine = replace(engine, notes=(*engine.notes, why))
    fields = {**header(engine), "title": title, "units": units, "encoder": encoder}
    with store.writer(name, fields, anew, differs, updates=bool(old)) as writer:
        old = as_opened(store, old)
        if not store.is_finished(name):  # also where an earlier draft is in the way
            own = (fields, differs, job.replace, writer.require_own, observer)
            with _leaving_nothing_empty(writer):
                writer.drafted = Drafting(store, name, engine, *own).of(sources)
        try:
            reading = read_in(job, observer, engine, sources, writer, expected, old=old)
        except CannotGoOn as error:
            if not job.replace:
                raise
            writer.discard()
            remedy = "What was kept of it is dropped, as --replace says: run the command again."
            raise CannotGoOn(error.what, error.why, remedy) from error
        went = gone(old, sources) if old else []
        return replace(reading.summary(store.opened(name)), gone=went)


def read_in(
    job: Job,
    observer: Observer,
    engine: Engine,
    sources: list[Source],
    writer: Writer,
    expected: int,
    marks: dict[str, Any] | None = None,
    old: Document | None = None,
) -> DocumentReading:
    """Reads sources to their end into a writer; see `DocumentReading` for the rest.

    A reading that ends without a document or a checkpoint leaves nothing behind.

    Args:
        old: the earlier state, from which unchanged sources are taken over.

    Raises:
        CannotGoOn: a source is not the one whose beginning the writer has.
        LongctxError: no room, or a source changes.
    """
    with _leaving_nothing_empty(writer), memory_told(engine, OUT_OF_MEMORY):
        behind = WriterBehind(writer, engine.device, len(engine.devices))
        stream = TokenStream(engine.files.tokenizer)
        kept = kept_units(old, sources, stream) if old else {}
        if old and kept and old.manifest.is_bare:
            make_again(engine, old)
        reading = SourceReading(sources, stream, behind, kept)
        within = partial(require_size, job.library, job.max_size)
        run = DocumentReading(
            engine, reading, behind, job.cadence, observer, within, expected, marks or {}
        )
        _log.info("reading %s sources, %s bytes", len(sources), reading.total)
        if reading.tokens:
            _log.info("going on after %s tokens of an earlier run", f"{reading.tokens:,}")
        with stage(_log, "reading", f"{len(sources)} sources read"):
            run.read()
    return run


@contextmanager
def _leaving_nothing_empty(writer: Writer) -> Iterator[None]:
    """Deletes what a writer has begun, if nothing of it is kept."""
    try:
        yield
    except BaseException:  # Ctrl-C too
        if writer.keeps_nothing:
            with suppress(LongctxError):  # `gc` deletes it
                writer.discard()
        raise
