"""One document read into its writer: chunks, checkpoints, and what Ctrl-C leaves.

`ingest.py` says what is read and where to; this reads it to the end. Nothing here depends on the
method.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from torch import Tensor

from longctx.core.common.device import peak_memory
from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.common.interrupts import Held
from longctx.core.contracts.memory import Snapshot
from longctx.core.contracts.method import Method
from longctx.core.engine.disk import VECTOR_BYTES, WORD_BYTES
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import Engine
from longctx.core.engine.window import room
from longctx.core.ingest.ahead import Unit
from longctx.core.ingest.append_points import Boundaries
from longctx.core.ingest.checkpoints import Cadence, Checkpoints
from longctx.core.ingest.ingested import Ingested, told
from longctx.core.ingest.job import NOBODY, Observer, Progress
from longctx.core.ingest.reading import SourceReading
from longctx.core.ingest.units import BY_SOURCE, tokens_again
from longctx.core.ingest.vectors import Encoding, tables_on
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.sources.detect import NotText
from longctx.core.store.behind import WriterBehind, to_host
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document

_log = logging.getLogger(__name__)

T = TypeVar("T")
SHOWN = 3  # reasons that an error lists
SLOW = 0.5  # seconds of a chunk for whose end Ctrl-C does not wait
Saved = tuple[Snapshot, Boundary | None, Callable]  # of a method; the last waits for both


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
        # Gives what was whole before a slow chunk, or the last one.
        self._ready: Callable[[], Saved] | None = None
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
        vectors = None
        if writer.encoder:
            make = tables_on(self.engine.device)
            vectors = Encoding(make, self.observer.progress, self._kept)
        each = WORD_BYTES + (VECTOR_BYTES if vectors else 0)
        tables = 0 if writer.drafted else int(each * self.reading.tokens)
        self.require_size(writer.growth(snapshot, boundary, bare) + tables)
        report = self.reading.report()
        writer.complete(snapshot, boundary, word_tables, bare, vectors, report=report)

    def _snapshots(self) -> Saved:
        """The method's snapshot and the last boundary, being copied to the CPU."""
        if self._copied is None:
            snapshot = self._method.snapshot() if self._method else {}
            self._copied = snapshot, *to_host(snapshot, self._still)
        snapshot, host, arrive = self._copied
        boundary = self._boundaries.latest(snapshot) if self._boundaries else None
        return _saved(snapshot, host, arrive, boundary, self._still)

    def _as_it_is(self) -> Callable[[], Saved]:
        """Gives what `_snapshots` would give now, copied when it is asked for.

        Where chunks change what a snapshot holds, it is copied at once. Elsewhere nothing waits for
        gigabytes to be copied before each slow chunk.
        """
        if not self._still or self._method is None:
            saved = self._snapshots()
            return lambda: saved
        snapshot = self._method.snapshot()
        boundary = self._boundaries.latest(snapshot) if self._boundaries else None
        return lambda: _saved(snapshot, *to_host(snapshot, still=True), boundary, still=True)

    @property
    def _still(self) -> bool:
        """Whether nothing changes what a snapshot holds."""
        return self._method is not None and self._method.capabilities.renews

    def _moved(self, method: Method | None) -> None:
        """All that was read is in a method, or between two sources in none."""
        self._whole, self._method, self._copied = True, method, None

    def _read(self, pieces: Iterator[tuple[Unit, Tensor]]) -> None:
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

    def _read_by_source(self, pieces: Iterator[tuple[Unit, Tensor]]) -> None:
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
            self._ready = self._as_it_is() if self._slow or end is None else None
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
        saved = self._snapshots() if self._whole else self._ready and self._ready()
        with suppress(LongctxError):  # such as a full disk: the last checkpoint stays
            self.behind.wait()
            if saved and self.reading.tokens > self._kept:
                self._checkpoint(saved)

    def _checkpoint(self, saved: Saved) -> None:
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
        return told(
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


def _saved(
    snapshot: Snapshot, host: Snapshot, arrive: Callable, boundary: Boundary | None, still: bool
) -> Saved:
    """A snapshot that is being copied to `host`, and a boundary that may have one of its own."""
    if boundary is None:
        return host, None, arrive
    if boundary.snapshot is snapshot:
        return host, replace(boundary, snapshot=host), arrive
    kept, arrive_too = to_host(boundary.snapshot, still)
    return host, replace(boundary, snapshot=kept), lambda: (arrive(), arrive_too())
