"""The first half of the main job: sources -> tokens -> encode -> store.

Reads a document once and leaves its state in a library; `session.py` answers from it. Nothing here
asks which method is in use.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from longctx.core.device import peak_memory
from longctx.core.disk import require_disk
from longctx.core.document import Document
from longctx.core.encode import encode
from longctx.core.errors import UnreadableInput
from longctx.core.gather import room
from longctx.core.manifest import Source as StoredSource
from longctx.core.memory import Method
from longctx.core.reader import Source, open_sources
from longctx.core.setup import Engine, Setup, prepare
from longctx.core.store import Library
from longctx.core.tokens import TokenStream
from longctx.core.writer import Writer

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Progress:
    """How far an ingest has come.

    Attributes:
        total: bytes of all sources; None where a stream does not tell.
        cache: bytes taken over from an earlier run.
        processed: bytes read so far.
        tokens: document tokens so far.
        time_ms: since the reading began.
    """

    total: int | None
    cache: int
    processed: int
    tokens: int
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
        peak_memory: bytes at most on the device; None where unknown.
        undecodable: places whose bytes are no text in the source's encoding.
        forced_splits: places where text without line breaks was cut.
        skipped: why sources were left out, one message each.
    """

    name: str
    status: str
    tokens: int
    bytes: int
    state_bytes: int
    reused_tokens: int = 0
    seconds: float = 0.0
    tokens_per_s: float = 0.0
    peak_memory: int | None = None
    undecodable: int = 0
    forced_splits: int = 0
    skipped: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `ingest`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def ingest(
    library: Path,
    paths: list[str],
    setup: Setup,
    name: str | None = None,
    replace: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Ingested:
    """Reads sources through a model once and keeps the state on disk.

    Args:
        library: the library's folder; made if absent.
        paths: files, or `-` for standard input.
        setup: model, method and device.
        name: the document's name; None: after the first source.
        replace: put the new state in the place of a finished one of this name.
        on_progress: called after every piece of text.

    Raises:
        UsageError: a missing file, an unknown name, or a document of this name with other content.
        UnreadableInput: no source could be read.
        LongctxError: no room for the model or the state.
    """
    sources = open_sources(paths)
    engine = prepare(setup)
    store = Library.open(library, create=True)
    name = name or document_name(paths[0])
    if not replace and (known := _unchanged(store, name, sources, engine)):
        return known
    require_disk(library, engine, sources)
    method = engine.new_method()  # before anything is written: the model may not fit
    with store.writer(name, header(engine), replace=replace) as writer:
        reading = Reading(engine, method, sources, writer, on_progress)
        encode(engine.decoder, method, engine.prompt.prefix(), reading.tokens(), writer)
        writer.complete(method.snapshot(), report=reading.report())
    return reading.summary(store.document(name))


def document_name(path: str) -> str:
    """A document's name after its first source: the file name without its ending."""
    stem = "stdin" if path == "-" else Path(path).stem
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem)
    return kept.strip(".-")[:100] or "document"


def header(engine: Engine) -> dict[str, object]:
    """What a manifest says of the model and method, apart from the document."""
    return {
        "model": engine.checkpoint.fingerprint().as_dict(),
        "recorded": engine.recorded(),
        "method": engine.method_name,
        "options": asdict(engine.options),
        "profile": asdict(engine.profile),
    }


def _unchanged(store: Library, name: str, sources: list[Source], engine: Engine) -> Ingested | None:
    """The finished document of this name, if it holds just these sources read in just this way.

    A file is the same if its path, size and modification time are, or else its hash.
    """
    finished = {manifest.name for manifest in store.documents() if manifest.status == "complete"}
    if name not in finished:
        return None
    document = store.document(name)
    manifest = document.manifest
    wanted = json.loads(json.dumps({**header(engine), "recorded": manifest.recorded}))
    same = all(getattr(manifest, key) == value for key, value in wanted.items())
    if not same or [s.path for s in manifest.sources] != [_path(s) for s in sources]:
        return None
    if not all(map(_same_file, manifest.sources, sources)):
        return None
    return Ingested(
        name=name,
        status="unchanged",
        tokens=manifest.tokens,
        reused_tokens=manifest.tokens,
        bytes=sum(source.size for source in manifest.sources),
        state_bytes=document.size(),
    )


def _path(source: Source) -> str | None:
    return str(source.path.resolve()) if source.path else None


def _same_file(known: StoredSource, source: Source) -> bool:
    if source.path is None:
        return False
    stat = source.path.stat()
    if (known.size, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
        return True
    with source.path.open("rb") as file:
        return known.sha256 == hashlib.file_digest(file, "sha256").hexdigest()


class Reading:
    """The sources on their way into the store, with what is counted on it.

    Args:
        engine: the model.
        method: reads the tokens.
        sources: what to read, in order.
        writer: gets text, tokens and offsets.
        on_progress: called after every piece of text.
    """

    def __init__(
        self,
        engine: Engine,
        method: Method,
        sources: list[Source],
        writer: Writer,
        on_progress: Callable[[Progress], None],
    ):
        self.engine, self.method, self.sources, self.writer = engine, method, sources, writer
        self.count = 0
        self.skipped: list[str] = []
        self._stream = TokenStream(engine.checkpoint.tokenizer)
        self._on_progress = on_progress
        self._sizes = [source.expected_size for source in sources]
        self._started = time.perf_counter()

    def tokens(self) -> Iterator[torch.Tensor]:
        """The document's token ids; text, offsets and counts go to the store on the way.

        Raises:
            UnreadableInput: no source could be read, or one failed half-way.
            LongctxError: the method needs all tokens at once and they do not fit.
        """
        for source in self.sources:
            try:
                yield from self._source(source)
            except UnreadableInput as error:
                # An empty, binary or forbidden source shows itself before anything of it is stored.
                if source.size:
                    raise
                self.skipped.append(str(error))
        if not self.count:
            raise UnreadableInput("nothing to read", " ".join(self.skipped) or "there is no text")

    def _source(self, source: Source) -> Iterator[torch.Tensor]:
        mtime = source.path.stat().st_mtime_ns if source.path else None
        self.writer.begin_source(source.name, _path(source), mtime)
        for piece in self._stream.read(source, self.writer.add_bytes):
            ids, starts = torch.from_numpy(piece.ids), torch.from_numpy(piece.starts)
            self.writer.append("tokens", {"ids": ids, "starts": starts})
            self.count += len(ids)
            self._require_room()
            yield ids.long()
            self._tell()
        self.writer.end_source(source.size, source.sha256, source.encoding, source.undecodable)

    def _tell(self) -> None:
        total = None if None in self._sizes else sum(self._sizes)
        processed = sum(source.size for source in self.sources)
        elapsed = int((time.perf_counter() - self._started) * 1000)
        self._on_progress(Progress(total, 0, processed, self.count, elapsed))

    def _require_room(self) -> None:
        """Refuses at once a document that its method could never answer from."""
        if self.method.gather is None:
            prefix = len(self.engine.prompt.prefix())
            room(self.engine.window, prefix, 1, 1, self.count, None)

    def report(self) -> dict[str, int]:
        """What the manifest tells of the reading."""
        return {"forced_splits": self._stream.forced_splits, "skipped": len(self.skipped)}

    def summary(self, document: Document) -> Ingested:
        """What the user is told at the end."""
        seconds = time.perf_counter() - self._started
        return Ingested(
            name=document.manifest.name,
            status="complete",
            tokens=self.count,
            bytes=sum(source.size for source in document.manifest.sources),
            state_bytes=document.size(),
            seconds=round(seconds, 3),
            tokens_per_s=round(self.count / seconds, 1),
            peak_memory=peak_memory(self.engine.device),
            undecodable=sum(source.undecodable for source in self.sources),
            forced_splits=self._stream.forced_splits,
            skipped=self.skipped,
        )
