"""Appends to a document: the growth of its last source, and further sources.

The state is reopened at its boundary, in a copy beside it that shares its files, and reading
continues there: the result has the bytes of one reading of everything, and replaces the document
when it is complete. What the document already has is taken from it, not from the sources' files.
A document whose sources were read one by one continues at its end, with further ones.
Nothing here depends on the method.
"""

from typing import Any

from xxhash import xxh3_128_hexdigest

from longctx.core.common.device import dtype_name
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.engine.disk import expected_in_room
from longctx.core.engine.opening import make_again
from longctx.core.engine.setup import Engine
from longctx.core.ingest.append_plan import (
    More,
    anew,
    end_of,
    further_units,
    more_of,
    sources_before,
    still_changed,
)
from longctx.core.ingest.append_sources import Start, encoding_stays, start_before
from longctx.core.ingest.identity import KEPT, CannotGoOn, begun_with, in_order, now_of
from longctx.core.ingest.ingest import read_in
from longctx.core.ingest.ingested import Ingested, as_it_was
from longctx.core.ingest.job import NOBODY, Job, Observer
from longctx.core.ingest.resume import engine_for, read_in_dtype
from longctx.core.ingest.units import BY_SOURCE
from longctx.core.ingest.vectors import encoder_again
from longctx.core.sources.find import check, open_sources
from longctx.core.sources.reader import Source
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.store.reopening import Longer
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

MARK = "append"  # in a checkpoint's report: the document that is appended to


def append(job: Job, observer: Observer = NOBODY) -> Ingested:
    """Appends to a complete document.

    The first source continues the document's last one if it is the same file or begins with the
    same bytes; all others follow it. A stopped append resumes from its last checkpoint; until it is
    complete, the document stays as it was.

    Args:
        job: its name is the document's. The document itself determines how it is read, and in
            which number format. The job's engine, if any, comes from `engine_for`.
        observer: hears about progress.

    Raises:
        UsageError: a file is missing, has changed other than by growing (at all, where sources
            are read one by one), or is in the document but not at its end; or the number format
            is not the document's.
        NotFound: no such library or document.
        Locked: another process writes it, or reads it for too long.
        StateMismatch: it is of another model, damaged, or of a version that records no boundary.
        LongctxError: no room for the model or the state.
    """
    store, name = Library.open(job.library), job.called
    check(job.paths, job.rules)  # a missing file is reported before anything is locked
    with store.longer(name) as longer:
        document = longer.document
        by_source = document.manifest.units == BY_SOURCE
        find = further_units if by_source else more_of
        more = find(document, open_sources(job.paths, job.rules))
        if not more.bytes and not more.new:
            return as_it_was(document)
        boundary = end_of(document) if by_source else _boundary(document)
        engine = job.engine or engine_for(document, job.setup)
        if by_source and document.manifest.is_bare:
            make_again(engine, document)
        sizes, before = more.sizes(), document.manifest.tokens
        vectors = bool(document.manifest.encoder)
        expected = expected_in_room(
            store, document.manifest.folder, engine, sizes, job.max_size, before, vectors
        )
        stream = TokenStream(engine.files.tokenizer)
        sources = more.sources(_start(more, boundary, stream), stream)
        marks = {MARK: xxh3_128_hexdigest(document.manifest.to_json().encode())}
        writer = _writer(longer, more, boundary, sources, engine, marks)
        try:
            reading = read_in(job, observer, engine, sources, writer, expected, marks)
        except CannotGoOn as error:
            writer.discard()
            raise CannotGoOn(
                f"cannot append to '{document.manifest.name}'",
                f"{error.what}: {error.why}",
                "What was kept of the append is dropped: run the command again. If it says the "
                f"same, read everything anew: {anew(document)}",
            ) from error
        return reading.summary(store.document(name))


def _boundary(document: Document) -> Boundary:
    """Where reading a document continues.

    Raises:
        StateMismatch: it records no boundary.
    """
    remedy = f"Read everything anew: {anew(document)}"
    boundary = document.boundary()
    if boundary is None:
        why = "an older longctx has read it, which did not keep what that needs"
        raise StateMismatch(f"cannot append to '{document.manifest.name}'", why, remedy)
    return boundary


def _start(more: More, boundary: Boundary, stream: TokenStream) -> tuple[int, Start]:
    """The source that the boundary is in, and where to start reading it again."""
    document = more.document
    if not boundary.tokens:
        return 0, Start()
    if document.manifest.units == BY_SOURCE:
        return len(document.manifest.sources), Start()
    number = document.source_of(boundary.tokens)
    last = len(document.manifest.sources) - 1
    if number == last and more.file and not encoding_stays(document, number, more.file):
        return number, Start()
    return number, start_before(document, number, boundary.tokens, stream)


def _writer(
    longer: Longer,
    more: More,
    boundary: Boundary,
    sources: list[Source],
    engine: Engine,
    marks: dict[str, Any],
) -> Writer:
    """A writer that continues from what an earlier run left, or from the boundary.

    Raises:
        UsageError: a reading that is to replace the document is unfinished.
    """
    manifest = longer.document.manifest
    header = {"recorded": engine.recorded(), "encoder": encoder_again(manifest)}
    kept = ("model", "method", "options", "profile", "title", "units")
    header |= {part: getattr(manifest, part) for part in kept}
    if longer.begun:
        _require_append(longer.begun.manifest)
        fixed = len(manifest.sources) - (more.file is not None)
        if _can_go_on(longer.begun.manifest, sources, fixed, engine, marks):
            try:
                return longer.go_on(header)
            except StateMismatch:
                pass  # it would only save work
    whole = manifest.units == BY_SOURCE
    kept = manifest.sources if whole else sources_before(more, boundary.tokens)
    order = in_order(manifest)
    ends = order.index(len(kept) - 1) if kept else -1
    report = {
        "forced_splits": boundary.forced_splits,
        "skipped": [entry for entry in order[: ends + 1] if not isinstance(entry, int)],
        "lost": [*manifest.report.get("lost", [])],  # also from what is read again
        "changed": still_changed(manifest, kept),
    }
    return longer.begin(header, boundary, kept, {**report, **marks})


def _require_append(begun: Manifest) -> None:
    if MARK not in begun.report:
        raise UsageError(
            f"cannot append to '{begun.name}'",
            f"a reading that is to take its place was begun ({begun.tokens:,} tokens)",
            "Run the command that began it to its end first, or begin it anew with --replace.",
        )


def _can_go_on(
    begun: Manifest, sources: list[Source], fixed: int, engine: Engine, marks: dict[str, Any]
) -> bool:
    """Whether the unfinished append is of these sources to this document, read the same way."""
    if read_in_dtype(begun) != dtype_name(engine.dtype):
        return False
    if begun.report[MARK] != marks[MARK] or begun_with(sources, begun) is None:
        return False
    return all(now_of(record) in KEPT for record in begun.sources[fixed:])
