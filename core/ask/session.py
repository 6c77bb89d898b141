"""The second half of the pipeline: store -> (gather -> recompute, or recall) -> decode.

A `Session` opens a document's state once and answers any number of questions from it. Nothing here
asks which method is in use.
"""

import logging
import time
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

from longctx.core.ask.answering import Answering
from longctx.core.ask.asking import Asking
from longctx.core.ask.by_words import by_words
from longctx.core.ask.kept_rows import KeptRows
from longctx.core.ask.server.address import server_of
from longctx.core.ask.ways import refuse_recall, way_of
from longctx.core.common.device import choose_device
from longctx.core.common.errors import LongctxError
from longctx.core.common.read_ahead import ReadAhead
from longctx.core.common.telemetry import facts, stage
from longctx.core.contracts.method import Method
from longctx.core.engine.choice import Setup, recorded
from longctx.core.engine.opening import memory_of, saved_snapshot
from longctx.core.engine.setup import memory_told, prepare
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.sameness import changed_sources

_log = logging.getLogger(__name__)

LARGE_STATE = (
    "Keys that were kept must all be in memory: keep them in fewer bytes (ingest --kv-dtype int8), "
    "or ingest with --method reform."
)


class Session(Asking):
    """An open document with its model.

    Use it as a context manager, or `close` it: it locks the document against deletion.

    Args:
        library: the library's folder.
        name: the document; None: the latest.
        setup: model, profile, device and dtype; the method is the document's.
        partial: for an unfinished document, use what its last checkpoint holds.

    Attributes:
        document: the open document.

    Raises:
        NotFound: no such library or document.
        Locked: the document is being written.
        StateMismatch: the state is damaged, or belongs to another model or format.
        LongctxError: the model does not fit in memory.
    """

    def __init__(self, library: Path, name: str | None, setup: Setup, partial: bool = False):
        started = time.perf_counter()
        store = Library.open(library)
        self.server = server_of(setup)
        with ExitStack() as held:
            opened = store.reading(name or store.latest(), partial)
            self.document = held.enter_context(opened)
            with stage(_log, "open", f"{self.document.manifest.name} opened with its model"):
                self._load(setup)
            self._held = held.pop_all()
            self._held.callback(self._kept.drop, self.document)
        self._changed = changed_sources(self.document.manifest.sources)
        self._load_s = time.perf_counter() - started
        self._tell()

    def _tell(self) -> None:
        """Logs what was opened."""
        manifest, size = self.document.manifest, self.document.size()
        facts(
            _log,
            "document %s: %s tokens of %s sources, %s bytes of state, %s, read by %s",
            *(manifest.name, f"{manifest.tokens:,}", len(manifest.sources), f"{size:,}"),
            *(manifest.status, manifest.method),
            document={"name": manifest.name, "tokens": manifest.tokens, "state_bytes": size},
        )

    @property
    def changed(self) -> list[str]:
        """Names of its sources whose files had changed when it was opened."""
        return self._changed

    @property
    def gathers_by(self) -> str:
        """The gather source of a question that names none."""
        return self._way("", None).gathers_by

    def _load(self, setup: Setup) -> None:
        """Loads the model while reading what it will need of the document."""
        with ReadAhead() as ahead:
            alone = setup.answer_model is None and self.server is None
            device = choose_device(setup.device) if alone and not setup.devices else "cpu"
            reread = partial(saved_snapshot, self.document, device)
            snapshot = ahead.submit(reread) if alone else None
            ahead.warm(self.document.read_whole(), Confined.open)
            self.engine = prepare(setup, recorded(self.document.manifest))
            self.document.require_model(self.engine.files.fingerprint().as_dict())
            self._index = PassageIndex(self.document)
            if self.document.word_files:  # else they are counted when needed
                ahead.submit(lambda: self._index.passages)
            try:
                if self.server is None:
                    _ = self.engine.answering.decoder
            except LongctxError:
                if snapshot:
                    snapshot.result()  # damage is reported first: another model would not help
                raise
            self._saved = snapshot.result if snapshot else reread
            self._kept = KeptRows(self.engine.device)
            self._rows = self._kept.of(self.document)
            self._ways: dict[tuple[str | None, bool], Answering] = {}
            if snapshot:
                _ = self._method
                if self.engine.asked_with is None:  # rows take the room that the model leaves
                    ahead.submit(partial(self._kept.warm, self.document))
                self._way("", METHOD)  # refuse a wrong method now; the rest when asked

    @cached_property
    def _method(self) -> Method:
        """What the document was read with; where another model answers, it may not be needed."""
        with memory_told(self.engine, LARGE_STATE):
            method = memory_of(self.engine, self.document, self._saved())
        del self._saved  # it holds the snapshot
        return method

    def _way(self, words: str, gather_by: str | None, finding: bool = False) -> Answering:
        """How the document is asked for a gather source; all ways share one index."""
        key = gather_by, finding
        if key not in self._ways:
            self._ways[key] = self._new_way(gather_by, finding)
        return self._ways[key]

    def _new_way(self, gather_by: str | None, finding: bool) -> Answering:
        engine, document, index = self.engine, self.document, self._index
        if self.answers_elsewhere and not finding:
            refuse_recall(engine, [document.manifest], gather_by)
            if way := by_words(engine, (document,), gather_by, index):
                return way
        return way_of(engine, document, self._method, gather_by, index, self._rows, finding)
