"""Makes the draft of a new document: its words first, then vectors, before the model reads it.

Text is tokenized once for the draft, which takes seconds where the model takes minutes, and again
when the model reads it; the word index and the vectors are made once. A stream, which cannot be
read twice, has no draft; nor has a document that is there already and is replaced or appended to,
or one that is read in a moment.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from longctx.core.common.errors import Locked, LongctxError, StateMismatch, UsageError
from longctx.core.engine.setup import Engine
from longctx.core.ingest.identity import CannotGoOn, begun_with, require_same_stream
from longctx.core.ingest.job import INDEXING, Observer, Progress
from longctx.core.ingest.reading import SourceReading
from longctx.core.ingest.vectors import Encoding, tables_on
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.sources.reader import Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.drafts import add_vectors, has_all_vectors
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest
from longctx.core.tokens.tokens import TokenStream

_log = logging.getLogger(__name__)

# Bytes of sources from which on there is a draft: of fewer the bundled model reads them within
# seconds, on a GPU within a minute or two, in which tokenizing twice would count.
LEAST, LEAST_ON_GPU = 1 << 16, 1 << 24


@dataclass(frozen=True)
class Drafting:
    """How the draft of a document is made.

    Attributes:
        store: the library.
        name: of the document's folder, which the caller writes.
        engine: its tokenizer is used, and its device for vectors.
        header: fields of the manifest, as of `Library.writer`.
        differs: says why a manifest is not of these sources, read this way; empty if it is.
        replaces: a draft of other sources may be replaced.
        fence: raises where the document has become another's to write.
        observer: hears about progress.
    """

    store: Library
    name: str
    engine: Engine
    header: dict[str, Any]
    differs: Callable[[Manifest], str]
    replaces: bool
    fence: Callable[[], None]
    observer: Observer

    def of(self, sources: list[Source]) -> Document | None:
        """The draft of a document of these sources; None where they cannot be read.

        Raises:
            UsageError: there is a draft of other sources, and it may not be replaced.
            Locked: another process reads a draft that is replaced, or writes the document now.
            LongctxError: vectors cannot be made or written.
        """
        draft = self._known(sources)
        if draft is None and wants_draft(sources, self.engine.device):
            draft = self._made(sources)
        if draft is None:
            self.store.drop_draft(self.name)  # one of another text would be asked meanwhile
        elif draft.manifest.encoder and not has_all_vectors(draft.manifest):
            make = Encoding(tables_on(self.engine.device), self.observer.progress, 0)
            try:
                add_vectors(draft.folder, make, self.fence)
                draft = self.store.draft(self.name)
            except StateMismatch as error:
                _log.info("the draft is given up: %s", error)
                self.store.drop_draft(self.name)
                return None
        return draft

    def _known(self, sources: list[Source]) -> Document | None:
        """The draft that is there, if it is sound and of these sources, with the same vectors."""
        try:
            draft = self.store.draft(self.name)
            return draft if draft and self._is_of(draft.manifest, sources) else None
        except StateMismatch:
            return None

    def _is_of(self, known: Manifest, sources: list[Source]) -> bool:
        records = begun_with(sources, known)
        if records is None and not self.replaces:
            raise UsageError(
                f"'{known.name}' was begun from something else ({known.tokens:,} tokens)",
                "it was read from other files",
                "Run the command that began it, or add --replace to begin anew",
            )
        if self.differs(known) or known.encoder != self.header["encoder"]:
            return False
        try:
            for source, record in zip(sources, records or (), strict=False):
                if record and record.path is None:  # a file that was sent: only its bytes tell
                    require_same_stream(replace(source), record)
        except CannotGoOn:
            if not self.replaces:
                raise
            return False
        return True

    def _made(self, sources: list[Source]) -> Document | None:
        """A new draft; None where sources cannot be read, which the model's reading tells."""
        try:
            with self.store.drafting(self.name, self.header, self.fence) as writer:
                behind = WriterBehind(writer, self.engine.device)
                stream = TokenStream(self.engine.files.tokenizer)
                reading = SourceReading([replace(each) for each in sources], stream, behind)
                with behind, reading.pieces() as pieces:
                    self._read(reading, pieces)
                if reading.tokens:
                    writer.draft(word_tables, report=reading.report())
        except Locked:
            raise
        except LongctxError as error:
            _log.info("no draft is made: %s", error)
        return self.store.draft(self.name)

    def _read(self, reading: SourceReading, pieces: Any) -> None:
        started = time.perf_counter()
        for _ in pieces:
            reading.store()
            elapsed = int(1000 * (time.perf_counter() - started))
            counts = reading.total, 0, reading.bytes, reading.tokens, 0, elapsed
            self.observer.progress(Progress(*counts, phase=INDEXING))
        reading.store()


def wants_draft(sources: list[Source], device: str) -> bool:
    """Whether sources can be read twice, and are not read soon on a device."""
    if not all(source.refused or (source.path and source.path.is_file()) for source in sources):
        return False
    least = LEAST_ON_GPU if device.startswith("cuda") else LEAST
    return sum(source.expected_size or 0 for source in sources) >= least
