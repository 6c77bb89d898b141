"""The first half of the main job: sources -> tokens -> encode -> store.

Reads a document once and leaves its state in a library; `session.py` answers from it. Nothing here
asks which method is in use.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from longctx.core.cadence import Cadence
from longctx.core.device import peak_memory
from longctx.core.disk import expected_tokens, require_disk, require_memory
from longctx.core.encode import encode
from longctx.core.errors import UnreadableInput
from longctx.core.gather import room
from longctx.core.memory import Method, Snapshot
from longctx.core.reader import open_sources
from longctx.core.reading import CannotGoOn, Reading
from longctx.core.resume import difference, header, unchanged
from longctx.core.setup import Engine, Setup, memory_told, prepare
from longctx.core.store.behind import WriterBehind, to_host
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.places import document_name
from longctx.core.store.space import require_size
from longctx.core.tokens import TokenStream

SCHEMA_VERSION = 1
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
        name: the document's.
        status: complete, or unchanged where it was there already.
        tokens, reused_tokens: of the document; taken over from an earlier run.
        bytes, state_bytes: of the sources; of the state on disk.
        seconds, tokens_per_s: of the reading, without loading the model.
        checkpoint_s: of these seconds, those in which checkpoints were written.
        peak_memory: bytes at most on the device; None where unknown.
        undecodable: places whose bytes are no text in the source's encoding.
        forced_splits: places where text without line breaks was cut.
        skipped: why sources were left out, one message each.
        changed: names of sources that have grown or were replaced while they were read.
        notes: what was decided otherwise than the profile says.
    """

    name: str
    status: str
    tokens: int
    bytes: int
    state_bytes: int
    reused_tokens: int = 0
    seconds: float = 0.0
    tokens_per_s: float = 0.0
    checkpoint_s: float = 0.0
    peak_memory: int | None = None
    undecodable: int = 0
    forced_splits: int = 0
    skipped: list[str] = field(default_factory=list)
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
) -> Ingested:
    """Reads sources through a model once and keeps the state on disk.

    A reading that was stopped is gone on with from its last checkpoint.

    Args:
        library: the library's folder; made if absent.
        paths: files, or `-` for standard input.
        setup: model, method and device.
        name: the document's name; None: after the first source.
        replace: put the new state in the place of a finished one of this name, and begin anew
            where a reading of this name was begun from something else.
        cadence: when to write a checkpoint; None: the usual one.
        max_size: bytes that the library may have; None: as many as the disk has.
        on_progress: called after every chunk.

    Raises:
        UsageError: a missing file, an unknown name, or a document of this name with other content.
        UnreadableInput: no source could be read.
        Locked: another process is reading a document of this name.
        LongctxError: no room for the model or the state.
    """
    sources = open_sources(paths)
    engine = prepare(setup)
    store = Library.open(library, create=True)
    name = name or document_name(paths[0])
    settled = store.settle(name)
    if (settled or not replace) and (known := unchanged(store, name, sources, engine)):
        return _as_it_was(known)
    method = engine.new_method()  # before anything is written: the model may not fit
    require_disk(store, name, engine, method, sources, max_size)
    require_memory(engine, method, sources)
    differs = partial(difference, engine, sources)
    with (
        store.writer(name, header(engine), replace, differs) as writer,
        memory_told(engine, OUT_OF_MEMORY),
    ):
        within = partial(require_size, store.path, max_size)
        try:
            behind = WriterBehind(writer, engine.device)
            reading = Reading(sources, TokenStream(engine.files.tokenizer), behind)
            sizes = [source.expected_size for source in sources]
            total = None if None in sizes else sum(sizes)
            expected = expected_tokens(engine, sources)
            cadence = cadence or Cadence()
            run = Run(engine, reading, behind, cadence, within, on_progress, total, expected)
            run.read()
        except CannotGoOn as error:
            if not replace:
                raise
            writer.discard()
            remedy = "What was kept of it is dropped, as --replace says: run the command again."
            raise CannotGoOn(error.what, error.why, remedy) from error
        return run.summary(store.document(name))


def _as_it_was(document: Document) -> Ingested:
    manifest = document.manifest
    return Ingested(
        name=manifest.name,
        status="unchanged",
        tokens=manifest.tokens,
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
    ):
        self._expected = expected
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
        snapshot, arrive = to_host(method.snapshot())
        arrive()
        self._require_size(self._writer.growth(snapshot))
        self._writer.complete(snapshot, report=self._reading.report())

    def _read(self, method: Method, ids: Iterator[Tensor]) -> None:
        prefix = self._engine.prompt.prefix()
        prefix = prefix[:0] if self._writer.begun else prefix
        for read in encode(self._engine.decoder, method, prefix, ids, self._writer):
            self._reading.store(self._reused + read)
            self._require_room(method)
            if self._cadence.is_due(self._reading.tokens):
                self._checkpoint(method)
            self._tell()
        self._reading.store()
        self._require_room(method)
        if not self._reading.tokens:
            why = " ".join(left["why"] for left in self._reading.skipped) or "there is no text"
            raise UnreadableInput("nothing to read", why)
        self._tell()

    def _checkpoint(self, method: Method) -> None:
        """Begins to write a checkpoint of what was read so far."""
        self._writer.wait()  # for the one before: its snapshot is as large
        tokens, report = self._reading.tokens, self._reading.report()
        self._cadence.start(tokens)
        self._writer.do(self._save, tokens, *to_host(method.snapshot()), report)

    def _save(
        self, tokens: int, snapshot: Snapshot, arrive: Callable, report: dict[str, Any]
    ) -> None:
        arrive()
        with self._cadence.writing(tokens):
            self._writer.checkpoint(snapshot, report=report)
        self._kept = tokens
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
            status="complete",
            tokens=manifest.tokens,
            bytes=sum(source.size for source in manifest.sources),
            state_bytes=document.size(),
            reused_tokens=self._reused,
            seconds=round(seconds, 3),
            tokens_per_s=round((manifest.tokens - self._reused) / seconds, 1),
            checkpoint_s=round(self._cadence.spent, 3),
            peak_memory=peak_memory(self._engine.device),
            undecodable=sum(source.undecodable for source in manifest.sources),
            forced_splits=reading.forced_splits,
            skipped=[left["why"] for left in reading.skipped],
            changed=reading.changed,
            notes=[*self._engine.notes],
        )
