"""The first half of the main job: sources -> tokens -> encode -> store.

Reads a document once and leaves its state in a library; `session.py` answers from it. Nothing here
asks which method is in use.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from longctx.core.common.device import peak_memory
from longctx.core.common.errors import UnreadableInput
from longctx.core.common.telemetry import stage
from longctx.core.contracts.memory import Snapshot
from longctx.core.contracts.method import Method, can_be_made_again
from longctx.core.engine.disk import WORD_BYTES, expected_tokens, require_disk, require_memory
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import Engine, Setup, memory_told, prepare
from longctx.core.engine.window import room
from longctx.core.ingest.append_points import Boundaries, on_host
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.reading import CannotGoOn, Reading
from longctx.core.ingest.resume import as_begun, difference, header, unchanged
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.sources.detect import NotText
from longctx.core.sources.find import USUAL, open_sources
from longctx.core.sources.reader import Source
from longctx.core.sources.rules import Rules
from longctx.core.store.behind import WriterBehind, to_host
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.naming import called, called_after
from longctx.core.store.space import require_size
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
SHOWN = 3  # reasons that an error gives
OUT_OF_MEMORY = (
    "What was read until the last checkpoint, if there was one, is kept. Read with a profile of a "
    "smaller chunk or budget; --dry-run measures beforehand."
)


@dataclass(frozen=True)
class Progress:
    """How far an ingest has come.

    Attributes:
        total: bytes of all sources; None where a stream does not tell.
        cache: bytes taken over from an earlier run.
        processed: bytes read so far.
        tokens: document tokens so far.
        kept: tokens that the last checkpoint holds.
        time_ms: since the reading began.
    """

    total: int | None
    cache: int
    processed: int
    tokens: int
    kept: int
    time_ms: int


@dataclass(frozen=True)
class Ingested:
    """What an ingest did.

    Attributes:
        name, title: the document's; the title is its name where it has no other.
        status: complete, or unchanged where it was there already.
        tokens, reused_tokens: of the document; taken over from an earlier run.
        bytes, state_bytes: of the sources; of the state on disk.
        seconds, tokens_per_s: of the reading, without loading the model.
        checkpoint_s: of these seconds, those in which checkpoints were written.
        peak_memory: bytes at most on the device; None where unknown.
        undecodable: places whose bytes are no text in the source's encoding.
        forced_splits: places where text without line breaks was cut.
        sources: how many were read.
        skipped: why sources were left out, one message each.
        left_out: the same of those in folders and archives that hold no text.
        lost: messages on what is missing in the middle or at the end of sources.
        changed: names of sources that have grown or were replaced while they were read.
        notes: what was decided otherwise than the profile says.
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
    replace: bool = False,
    cadence: Cadence | None = None,
    max_size: int | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    rules: Rules = USUAL,
    engine: Engine | None = None,
) -> Ingested:
    """Reads sources through a model once and keeps the state on disk.

    A reading that was stopped is gone on with from its last checkpoint.

    Args:
        library: the library's folder; made if absent.
        paths: files, folders, patterns, or `-` for standard input.
        setup: model, method and device.
        name: what the document is called, in any script; None: after the first source.
        replace: put the new state in the place of a finished one of this name, and begin anew
            where a reading of this name was begun from something else.
        cadence: when to write a checkpoint; None: the usual one.
        max_size: bytes that the library may have; None: as many as the disk has.
        on_progress: called after every chunk.
        rules: what is read of folders and archives, and how.
        engine: what `setup` comes to, where that is known.

    Raises:
        UsageError: a missing file, an unknown name, or a document of this name with other content.
        UnreadableInput: no source could be read.
        Locked: another process is reading a document of this name.
        LongctxError: no room for the model or the state.
    """
    sources, engine = open_sources(paths, rules), engine or prepare(setup)
    name, title = called_after(paths[0]) if name is None else called(name)
    given = name, replace, cadence, max_size, on_progress, title
    return ingest_sources(library, sources, engine, *given)


def ingest_sources(
    library: Path,
    sources: list[Source],
    engine: Engine,
    name: str,
    replace: bool,
    cadence: Cadence | None,
    max_size: int | None,
    on_progress: Callable[[Progress], None],
    title: str | None = None,
) -> Ingested:
    """As `ingest`, of sources that were opened and with an engine that may be used again.

    Args:
        name: of the document, one that a folder can have.
        title: what it is called where that is not its name.
    """
    store = Library.open(library, create=True)
    settled = store.settle(name)
    if (settled or not replace) and (known := unchanged(store, name, sources, engine)):
        _log.info("%s is there already, of the same sources and settings", name)
        return as_it_was(known)
    engine = as_begun(store, name, sources, engine)
    method = engine.new_method()  # before anything is written: the model may not fit
    require_disk(store, name, engine, method, sources, max_size)
    require_memory(engine, method, sources)
    differs = partial(difference, engine, sources)
    with store.writer(name, {**header(engine), "title": title}, replace, differs) as writer:
        expected = expected_tokens(engine, sources)
        within = partial(require_size, store.path, max_size)
        try:
            run = read_in(engine, sources, writer, cadence, within, on_progress, expected)
        except CannotGoOn as error:
            if not replace:
                raise
            writer.discard()
            remedy = "What was kept of it is dropped, as --replace says: run the command again."
            raise CannotGoOn(error.what, error.why, remedy) from error
        return run.summary(store.document(name))


def read_in(
    engine: Engine,
    sources: list[Source],
    writer: Writer,
    cadence: Cadence | None,
    require_size: Callable[..., None],
    on_progress: Callable[[Progress], None],
    expected: int,
    marks: dict[str, Any] | None = None,
) -> "Run":
    """Reads sources to their end into a writer; see `Run` for what is given.

    Raises:
        CannotGoOn: a source is not the one that the writer has the beginning of.
        LongctxError: no room, or a source changes.
    """
    with memory_told(engine, OUT_OF_MEMORY):
        behind = WriterBehind(writer, engine.device)
        reading = Reading(sources, TokenStream(engine.files.tokenizer), behind)
        sizes = [source.expected_size for source in sources]
        total = None if None in sizes else sum(sizes)
        cadence = cadence or Cadence()
        parts = engine, reading, behind, cadence, require_size, on_progress
        run = Run(*parts, total, expected, marks)
        _log.info("reading %s sources, %s bytes", len(sources), total)
        if reading.tokens:
            _log.info("going on after %s tokens of an earlier run", f"{reading.tokens:,}")
        with stage(_log, "reading", f"{len(sources)} sources read"):
            run.read()
    return run


def as_it_was(document: Document) -> Ingested:
    """Nothing was to be done."""
    manifest = document.manifest
    return Ingested(
        name=manifest.name,
        title=manifest.shown,
        status="unchanged",
        tokens=manifest.tokens,
        sources=len(manifest.sources),
        reused_tokens=manifest.tokens,
        bytes=sum(source.size for source in manifest.sources),
        state_bytes=document.size(),
    )


class Run:
    """One reading of a document, from its beginning or from a checkpoint to its end.

    Args:
        engine: the model and the method.
        reading: what is read.
        writer: where it goes.
        cadence: when to write a checkpoint.
        require_size: refuses to let the library grow by so many bytes.
        on_progress: called after every chunk.
        total: bytes of all sources, where they are known.
        expected: about how many tokens they have; 0: nobody knows.
        marks: what the report of a checkpoint says beside what was read.
    """

    def __init__(
        self,
        engine: Engine,
        reading: Reading,
        writer: WriterBehind,
        cadence: Cadence,
        require_size: Callable[..., None] = lambda growth=0: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        total: int | None = None,
        expected: int = 0,
        marks: dict[str, Any] | None = None,
    ):
        self._expected, self._marks = expected, marks or {}
        self._boundaries = Boundaries(reading, writer.begun)
        self._engine, self._writer, self._on_progress = engine, writer, on_progress
        self._require_size, self._reading, self._cadence = require_size, reading, cadence
        self._reused, self._cached = reading.tokens, reading.bytes
        self._kept = self._reused
        self._total = total
        self._started = time.perf_counter()

    def read(self) -> None:
        """Reads to the end and gives the document its place.

        Raises:
            UnreadableInput: there is no text.
        """
        begun = self._writer.begun
        method = self._engine.new_method(begun and begun.snapshot(), begun, True, self._expected)
        self._cadence.start(self._reused)
        self._tell()
        try:
            with self._writer, self._reading.ids() as ids:
                self._read(method, ids)
        except BaseException:  # Ctrl-C too: a checkpoint may have been finished since
            self._tell()
            raise
        snapshot, boundary, arrive = self._snapshots(method)
        arrive()
        snapshot = None if self._is_cheap(method, boundary) else snapshot
        words = WORD_BYTES * self._reading.tokens
        self._require_size(self._writer.growth(snapshot, boundary) + words)
        self._writer.complete(snapshot, boundary, word_tables, report=self._reading.report())

    def _is_cheap(self, method: Method, boundary: Boundary | None) -> bool:
        """Whether the snapshot need not be kept: to make it again is less than an answer takes."""
        tokens = len(self._engine.prompt.prefix()) + self._reading.tokens
        begins_anew = boundary is not None and not boundary.tokens
        return begins_anew and can_be_made_again(method, tokens)

    def _snapshots(self, method: Method) -> tuple[Snapshot, Boundary | None, Callable]:
        """The method's snapshot and the last boundary, on their way to the CPU."""
        snapshot = method.snapshot()
        host, arrive = to_host(snapshot)
        latest = self._boundaries.latest(snapshot)
        boundary, arrive_too = on_host(latest, snapshot, host, to_host)
        return host, boundary, lambda: (arrive(), arrive_too())

    def _read(self, method: Method, ids: Iterator[Tensor]) -> None:
        prefix = self._engine.prompt.prefix()
        prefix = prefix[:0] if self._writer.begun else prefix

        def before(end: int | None) -> None:
            self._boundaries.before(method, None if end is None else self._reused + end)

        for read in encode(self._engine.decoder, method, prefix, ids, self._writer, before):
            self._reading.store(self._reused + read)
            self._require_room(method)
            if self._cadence.is_due(self._reading.tokens):
                self._checkpoint(method)
            self._tell()
        self._reading.store()
        self._require_room(method)
        if not self._reading.tokens:
            raise self._nothing()
        self._tell()

    def _nothing(self) -> UnreadableInput:
        skipped = self._reading.skipped
        told = " ".join(left["why"] for left in skipped[:SHOWN]) or "there is no text"
        more = f" And {len(skipped) - SHOWN:,} more." if len(skipped) > SHOWN else ""
        missed = any(left.get("text", True) for left in skipped)
        return (UnreadableInput if missed else NotText)("nothing to read", told + more)

    def _checkpoint(self, method: Method) -> None:
        """Begins to write a checkpoint of what was read so far."""
        self._writer.wait()  # for the one before: its snapshot is as large
        tokens, report = self._reading.tokens, {**self._reading.report(), **self._marks}
        self._cadence.start(tokens)
        self._writer.do(self._save, tokens, *self._snapshots(method), report)

    def _save(
        self,
        tokens: int,
        snapshot: Snapshot,
        boundary: Boundary | None,
        arrive: Callable,
        report: dict[str, Any],
    ) -> None:
        arrive()
        with self._cadence.writing(tokens):
            self._writer.checkpoint(snapshot, boundary, report=report)
        self._kept = tokens
        _log.debug("checkpoint after %s tokens", f"{tokens:,}")
        self._require_size()

    def _tell(self) -> None:
        elapsed = int((time.perf_counter() - self._started) * 1000)
        reading = self._reading
        self._on_progress(
            Progress(self._total, self._cached, reading.bytes, reading.tokens, self._kept, elapsed)
        )

    def _require_room(self, method: Method) -> None:
        """Refuses at once a document that its method could never answer from."""
        if method.gather is None:
            prefix = len(self._engine.prompt.prefix())
            room(self._engine.window, prefix, 1, 1, self._reading.tokens, None)

    def summary(self, document: Document) -> Ingested:
        """What the user is told at the end."""
        seconds = time.perf_counter() - self._started
        manifest, reading = document.manifest, self._reading
        return Ingested(
            name=manifest.name,
            title=manifest.shown,
            status="complete",
            tokens=manifest.tokens,
            sources=len(manifest.sources),
            bytes=sum(source.size for source in manifest.sources),
            state_bytes=document.size(),
            reused_tokens=self._reused,
            seconds=round(seconds, 3),
            tokens_per_s=round((manifest.tokens - self._reused) / seconds, 1),
            checkpoint_s=round(self._cadence.spent, 3),
            peak_memory=peak_memory(self._engine.device),
            undecodable=sum(source.undecodable for source in manifest.sources),
            forced_splits=reading.forced_splits,
            skipped=[left["why"] for left in reading.skipped if left.get("text", True)],
            left_out=[left["why"] for left in reading.skipped if not left.get("text", True)],
            lost=reading.lost,
            changed=reading.changed,
            notes=[*self._engine.notes],
        )
