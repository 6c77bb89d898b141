"""The first half of the pipeline: sources -> tokens -> encode -> store.

Reads a document once and leaves its state in a library; `core/ask/session.py` answers from it.
Nothing here depends on the method.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from longctx.core.common.device import peak_memory
from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.common.interrupts import Held
from longctx.core.common.telemetry import stage
from longctx.core.contracts.memory import Snapshot
from longctx.core.contracts.method import Method
from longctx.core.engine.choice import Setup
from longctx.core.engine.disk import WORD_BYTES, expected_in_room
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import Engine, memory_told, prepare
from longctx.core.engine.window import room
from longctx.core.ingest.append_points import Boundaries
from longctx.core.ingest.checkpoints import Cadence, Checkpoints
from longctx.core.ingest.identity import CannotGoOn
from longctx.core.ingest.job import NOBODY, Job, Observer, Progress
from longctx.core.ingest.reading import SourceReading, Unit
from longctx.core.ingest.resume import (
    as_begun,
    begun_of,
    computed_otherwise,
    difference,
    header,
    is_unchanged,
    standing,
)
from longctx.core.ingest.units import BY_SOURCE, gone, kept_units, tokens_again, units_for
from longctx.core.ingest.update import (
    as_opened,
    engine_to_update,
    is_outdated,
    require_replaceable,
)
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import open_sources
from longctx.core.sources.reader import Source
from longctx.core.store.behind import WriterBehind, to_host
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.space import require_size
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

_log = logging.getLogger(__name__)

T = TypeVar("T")
SCHEMA_VERSION = 1
SHOWN = 3  # reasons that an error lists
SLOW = 0.5  # seconds of a chunk for whose end Ctrl-C does not wait
OUT_OF_MEMORY = (
    "What was read until the last checkpoint, if there was one, is kept. Read with a profile of a "
    "smaller chunk or budget; --dry-run measures beforehand."
)


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
    expected = expected_in_room(store, name, engine, sources, job.max_size)
    differs = partial(difference, engine, sources, units)
    anew = job.replace or (bool(old) and is_outdated(store, name, sources, engine))
    if why := computed_otherwise(store, name, sources, engine, units):
        anew, differs = True, lambda begun: why
        engine = replace(engine, notes=(*engine.notes, why))
    fields = {**header(engine), "title": title, "units": units}
    with store.writer(name, fields, anew, differs, updates=bool(old)) as writer:
        old = as_opened(store, old)
        try:
            reading = read_in(job, observer, engine, sources, writer, expected, old=old)
        except CannotGoOn as error:
            if not job.replace:
                raise
            writer.discard()
            remedy = "What was kept of it is dropped, as --replace says: run the command again."
            raise CannotGoOn(error.what, error.why, remedy) from error
        went = gone(old, sources) if old else []
        return replace(reading.summary(store.document(name)), gone=went)


def read_in(
    job: Job,
    observer: Observer,
    engine: Engine,
    sources: list[Source],
    writer: Writer,
    expected: int,
    marks: dict[str, Any] | None = None,
    old: Document | None = None,
) -> "DocumentReading":
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
            engine.make_again(old)
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


Saved = tuple[Snapshot, Boundary | None, Callable]  # of a method; the last waits for both


def as_it_was(document: Document) -> Ingested:
    """The result if there was nothing to do."""
    return _told(document, status="unchanged", reused_tokens=document.manifest.tokens)


def _told(document: Document, **more: Any) -> Ingested:
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


@dataclass
class DocumentReading:
    """One reading of a document, from its beginning or from a checkpoint to its end.

    Attributes:
        engine: the model and the method.
        reading: what is read.
        behind: where it is written.
        cadence: when to write a checkpoint.
        observer: hears about progress.
        require_size: raises if the library cannot grow by so many bytes.
        expected: about how many tokens the sources have; 0: unknown.
        marks: further fields of a checkpoint's report.
        checkpoints: those of this reading.
    """

    engine: Engine
    reading: SourceReading
    behind: WriterBehind
    cadence: Cadence
    observer: Observer = NOBODY
    require_size: Callable[..., None] = lambda growth=0: None
    expected: int = 0
    marks: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.cadence, self.reading.tokens)
        self._by_source = self.behind.writer.units == BY_SOURCE
        begun = self.behind.writer.begun
        self._boundaries = None if self._by_source else Boundaries(self.reading, begun)
        self._method: Method | None = None  # holds what was read; None: between two sources
        self._reused, self._cached = self.reading.tokens, self.reading.bytes
        self._kept = self._reused
        self._held = Held()
        self._whole = True  # the method has read what is stored, no more and no less
        self._copied: tuple[Snapshot, Snapshot, Callable] | None = None  # as it is now
        self._ready: Saved | None = None  # what was whole before a slow chunk, or the last one
        self._slow = False  # the last chunk was
        self._started = self._stepped = time.perf_counter()

    def read(self) -> None:
        """Reads to the end and publishes the document.

        Ctrl-C takes effect where a chunk ends, where text is waited for, and in the midst of a
        slow chunk. What was read by then is saved.

        Raises:
            UnreadableInput: there is no text.
        """
        if not self._by_source:
            self._method = self._new_method(self.behind.writer.begun)
        self.checkpoints.start(self._reused)
        self._tell()
        try:
            with self.behind, self.reading.pieces() as pieces, self._held:
                try:
                    self._read(self._awaited(pieces))
                except KeyboardInterrupt:
                    self._save_stopped()
                    raise
            self._complete()
        except BaseException:  # Ctrl-C too: a checkpoint may have been finished since
            self._tell()
            raise

    def _new_method(self, begun: Document | None) -> Method:
        """The memory to read with, new or as a checkpoint has it."""
        return self.engine.new_method(begun and begun.snapshot(), begun, True, self.expected)

    def _complete(self) -> None:
        """Writes the rest, and publishes the document."""
        snapshot, boundary, arrive = self._snapshots()
        arrive()
        prefix, writer = len(self.engine.prompt.prefix()), self.behind.writer
        method, tokens = self._method, prefix + self.reading.tokens
        if self._by_source:
            snapshot, method = None, self.engine.new_method()
            tokens = tokens_again([source.tokens for source in writer.sources], prefix)
        bare = method is not None and self.engine.can_leave_out(method, tokens)
        if bare and not self._by_source:
            snapshot, boundary = None, Boundary(0, {}, 0)
        words = WORD_BYTES * self.reading.tokens
        self.require_size(writer.growth(snapshot, boundary, bare) + words)
        writer.complete(snapshot, boundary, word_tables, bare, report=self.reading.report())

    def _snapshots(self) -> "Saved":
        """The method's snapshot and the last boundary, being copied to the CPU."""
        if self._copied is None:
            snapshot = self._method.snapshot() if self._method else {}
            self._copied = snapshot, *to_host(snapshot, self._still)
        snapshot, host, arrive = self._copied
        boundary = self._boundaries.latest(snapshot) if self._boundaries else None
        if boundary is None:
            return host, None, arrive
        if boundary.snapshot is snapshot:
            return host, replace(boundary, snapshot=host), arrive
        kept, arrive_too = to_host(boundary.snapshot, self._still)
        return host, replace(boundary, snapshot=kept), lambda: (arrive(), arrive_too())

    @property
    def _still(self) -> bool:
        """Whether nothing changes what a snapshot holds."""
        return self._method is not None and self._method.capabilities.renews

    def _moved(self, method: Method | None) -> None:
        """All that was read is in a method, or between two sources in none."""
        self._whole, self._method, self._copied = True, method, None

    def _read(self, pieces: "Iterator[tuple[Unit, Tensor]]") -> None:
        if self._method:
            ids = (ids for _, ids in pieces)
            self._read_on(self._method, ids, self.behind.writer.begun is not None)
        else:
            self._read_by_source(pieces)
        if self._whole:
            self._save_last()
        self._whole = False
        self.reading.store()
        if self._method:
            self._require_room(self._method)
        if not self.reading.tokens:
            raise self._nothing()
        self._tell()

    def _read_by_source(self, pieces: "Iterator[tuple[Unit, Tensor]]") -> None:
        """Reads each source with a method of its own; what is taken over is only stored."""
        end = self.reading.tokens
        for unit, own in groupby(pieces, key=itemgetter(0)):
            if unit.kept is None:
                method = self._new_method(self.behind.writer.begun if unit.goes_on else None)
                self._method = method if unit.goes_on else None
                self._read_on(method, (ids for _, ids in own), unit.goes_on)
            else:
                self.checkpoints.skip(unit.tokens)
            end += unit.tokens
            self.reading.store(end)
            self._moved(None)
            self._stepped_on()

    def _read_on(self, method: Method, ids: Iterator[Tensor], begun: bool) -> None:
        """Reads tokens with one method, behind the prefix unless they were begun."""
        first, prefix = self.reading.tokens, self.engine.prompt.prefix()

        def before(end: int | None) -> None:
            if end is None and not self._by_source:
                self._save_last()
            self._ready = self._snapshots() if self._slow or end is None else None
            if self._boundaries:
                self._boundaries.before(method, None if end is None else first + end)
            self._whole = False

        prefix = prefix[:0] if begun else prefix
        steps = encode(
            self.engine.reader, method, prefix, ids, self.behind, before, self._stoppable
        )
        for read in steps:
            self.reading.store(first + read)
            self._moved(method)
            self._require_room(method)
            self._stepped_on()

    def _stepped_on(self) -> None:
        """After each chunk, and each source that is read by itself."""
        if self.checkpoints.is_due(self.reading.tokens):
            self._checkpoint(self._snapshots())
        self._tell()
        with self._held.let():  # one that came meanwhile
            pass

    def _nothing(self) -> UnreadableInput:
        skipped = self.reading.skipped
        told = " ".join(left["why"] for left in skipped[:SHOWN]) or "there is no text"
        more = f" And {len(skipped) - SHOWN:,} more." if len(skipped) > SHOWN else ""
        missed = any(left.get("text", True) for left in skipped)
        return (UnreadableInput if missed else NotText)("nothing to read", told + more)

    def _awaited(self, pieces: Iterator[T]) -> Iterator[T]:
        """The same pieces; a person may end the waiting for them, as for standard input."""
        while True:
            with self._held.let():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """A chunk runs through the model; Ctrl-C waits for its end only to lose nothing."""
        self._copied = None
        if self._ready is None and self.reading.tokens > self._kept:
            yield
            return
        with self._held.let():
            yield
        self._ready = None  # the rows of this chunk follow

    def _save_last(self) -> None:
        """Saves what was read before the document is completed, if that was much."""
        if self.checkpoints.is_due(self.reading.tokens, last=True):
            self._checkpoint(self._snapshots())

    def _save_stopped(self) -> None:
        """Saves what was read until Ctrl-C; a chunk that it ended is read again."""
        saved = self._snapshots() if self._whole else self._ready
        with suppress(LongctxError):  # such as a full disk: the last checkpoint stays
            self.behind.wait()
            if saved and self.reading.tokens > self._kept:
                self._checkpoint(saved)

    def _checkpoint(self, saved: "Saved") -> None:
        """Starts writing a checkpoint of what was read so far."""
        self.behind.wait()  # for the previous one: its snapshot is as large
        tokens, report = self.reading.tokens, {**self.reading.report(), **self.marks}
        self.checkpoints.start(tokens)
        self.behind.do(self._save, tokens, *saved, report)

    def _save(
        self,
        tokens: int,
        snapshot: Snapshot,
        boundary: Boundary | None,
        arrive: Callable,
        report: dict[str, Any],
    ) -> None:
        arrive()
        with self.checkpoints.writing(tokens):
            self.behind.writer.checkpoint(snapshot, boundary, report=report)
        self._kept = tokens
        _log.debug("checkpoint after %s tokens", f"{tokens:,}")
        self.require_size()

    def _tell(self) -> None:
        now = time.perf_counter()
        self._slow, self._stepped = now - self._stepped > SLOW, now
        elapsed = int((now - self._started) * 1000)
        reading = self.reading
        cached = self._cached + reading.taken.bytes
        counts = reading.total, cached, reading.bytes, reading.tokens, self._kept
        self.observer.progress(Progress(*counts, elapsed))

    def _require_room(self, method: Method) -> None:
        """Refuses early a document that its method could never answer from."""
        if method.gather is None:
            prefix = len(self.engine.prompt.prefix())
            room(self.engine.window, prefix, 1, 1, self.reading.tokens, None)

    def summary(self, document: Document) -> Ingested:
        """The summary for the user at the end."""
        seconds = time.perf_counter() - self._started
        reading, reused = self.reading, self._reused + self.reading.taken.tokens
        read = document.manifest.tokens - reused
        sources = document.manifest.sources
        return _told(
            document,
            status="complete",
            reused_tokens=reused,
            reused_sources=reading.taken.sources,
            seconds=round(seconds, 3),
            tokens_per_s=round(read / seconds, 1),
            checkpoint_s=round(self.checkpoints.spent, 3),
            peak_memory=peak_memory(self.engine.device),
            undecodable=sum(source.undecodable or 0 for source in sources),
            forced_splits=reading.forced_splits,
            skipped=[left["why"] for left in reading.skipped if left.get("text", True)],
            left_out=[left["why"] for left in reading.skipped if not left.get("text", True)],
            lost=reading.lost,
            changed=reading.changed,
            notes=[*self.engine.notes],
        )
