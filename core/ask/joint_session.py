"""Several documents of a library, opened with one model and asked together.

Where there are more than `max_docs`, document selection picks some by words for each question.
Documents that are asked stay open for the next question; the others, and all states, leave memory.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch import Tensor

from longctx.core import methods
from longctx.core.ask.answering import Answering
from longctx.core.ask.asking import Asking
from longctx.core.ask.by_words import by_words
from longctx.core.ask.candidates import Candidates, none_left, why_gone
from longctx.core.ask.gather import split
from longctx.core.ask.joint import Joint, alone
from longctx.core.ask.kept_rows import KeptRows
from longctx.core.ask.server.address import server_of
from longctx.core.ask.ways import refuse_recall
from longctx.core.common.errors import Locked, LongctxError, NotFound, StateMismatch
from longctx.core.common.telemetry import facts, stage
from longctx.core.contracts.method import Recallable
from longctx.core.engine.choice import Setup, recorded
from longctx.core.engine.setup import Engine, beside, prepare
from longctx.core.retrieve.document_selection import best_documents, best_of_library
from longctx.core.retrieve.gather_by import METHOD
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.library_words import LibraryWords
from longctx.core.store.catalogue import MANY
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.manifest import Manifest
from longctx.core.store.sameness import changed_sources

_log = logging.getLogger(__name__)

MAX_DOCS = 16  # documents that a question is encoded for


class JointSession(Asking):
    """Open documents with their model. Use it as a context manager, or `close` it.

    The profile, which includes the prompt, is the first document's unless the user names one.

    Args:
        candidates: the documents that can be asked, in order.
        setup: model, profile, device and dtype; the method is each document's.
        max_docs: the most documents that a question is encoded for.
        gather_by: the gather source; documents that do not fit it are refused before the model is
            loaded.
        on_left_out: gets the name of each document that is skipped from now on, and why.

    Attributes:
        skipped: by name, why a document is not asked; it grows when one becomes unavailable.

    Raises:
        NotFound, Locked: a named document has been deleted, or is being written.
        StateMismatch: a state belongs to another model, or that of a named document is damaged.
        UsageError: a document answers by recall.
        LongctxError: the model does not fit in memory.
    """

    def __init__(
        self,
        candidates: Candidates,
        setup: Setup,
        max_docs: int = MAX_DOCS,
        gather_by: str | None = None,
        on_left_out: Callable[[str, str], None] = lambda name, why: None,
    ):
        started = time.perf_counter()
        self.server = server_of(setup)
        self._candidates, self._max_docs = candidates, max_docs
        self._on_left_out, self._spares = on_left_out, not candidates.named
        self.skipped = dict(candidates.skipped)
        self._open: dict[str, tuple[Document, ExitStack]] = {}
        self._changed: dict[str, list[str]] = {}
        self._indexes: dict[tuple[int, ...], PassageIndex] = {}
        self._all_words: tuple[int, LibraryWords] | None = None
        with ExitStack() as held:
            held.callback(self._close_others, [])
            with stage(
                _log, "open", f"{len(candidates.manifests):,} documents opened with their model"
            ):
                self._load(setup, gather_by)
            self._held = held.pop_all()
        self._load_s = time.perf_counter() - started
        self._tell()

    def _load(self, setup: Setup, gather_by: str | None) -> None:
        """Loads the model, and opens the documents unless there are too many for a question."""
        candidates = self._candidates
        self.engine = prepare(setup, recorded(candidates.first()))
        self._fingerprint = self.engine.files.fingerprint().as_dict()
        self._require_gathered(gather_by)
        if len(candidates.manifests) <= self._max_docs:
            self._opened([name for name in candidates.folders if name not in self.skipped])
        if self.server is None:
            _ = self.engine.answering.decoder
        self._kept = KeptRows(self.engine.device)

    def _tell(self) -> None:
        """Logs what can be asked."""
        manifests = self._candidates.manifests
        tokens = sum(manifest.tokens for manifest in manifests)
        facts(
            _log,
            "%s documents may be asked, %s tokens; %s at once",
            *(f"{len(manifests):,}", f"{tokens:,}", self._max_docs),
            documents={"count": len(manifests), "tokens": tokens, "at_once": self._max_docs},
        )

    @property
    def changed(self) -> list[str]:
        """Names of open documents' sources whose files have changed."""
        return [name for names in self._changed.values() for name in names]

    def _require_gathered(self, gather_by: str | None, finding: bool = False) -> None:
        """Refuses documents that answer by recall if they are named, else leaves them out."""
        if gather_by not in (None, METHOD) or (finding and gather_by is None):
            return
        manifests = self._candidates.manifests
        ways = {method: self._recall(method) for method in {each.method for each in manifests}}
        recalled = {each.name: name for each in manifests if (name := ways[each.method])}
        optional = not self._candidates.named and len(recalled) < len(manifests)
        if self.answers_elsewhere and not finding and not optional:
            refuse_recall(self.engine, manifests, gather_by)
        for document, name in recalled.items():
            error = alone(document, name)
            if not optional:
                raise error
            if document not in self.skipped:
                self._left_out(document, f"can only be asked alone: {error.why}")

    def _recall(self, method: str) -> str:
        """The method by which documents read with this one would be recalled; empty if none."""
        name = self.engine.asked_with or method
        return name if issubclass(methods.load(name).Method, Recallable) else ""

    def _way(self, words: str, gather_by: str | None, finding: bool = False) -> Answering:
        self._require_gathered(gather_by, finding)
        documents = self._opened(self._names_for(words))
        if gather_by is None:
            gather_by = self.engine.profile.gather_by
        if self.answers_elsewhere and not finding:
            way = by_words(self.engine, documents, gather_by, self._index_of(documents))
            if way is not None:
                return way
        _ = self.engine.decoder  # once, for all documents
        engines = [self._engine_of(document) for document in documents]
        return Joint(engines, documents, gather_by, self._index_of(documents), self._kept)

    def _engine_of(self, document: Document) -> Engine:
        return beside(self.engine, document.manifest)

    def _index_of(self, documents: tuple[Document, ...]) -> PassageIndex:
        """The words of documents, counted once while the same documents are asked."""
        key = tuple(map(id, documents))
        if key not in self._indexes:
            self._indexes = {key: PassageIndex(*documents)}
        return self._indexes[key]

    def _names_for(self, words: str) -> list[str]:
        """The documents that a question is asked of."""
        names = [name for name in self._candidates.folders if name not in self.skipped]
        if len(names) <= self._max_docs:
            return names
        if len(names) >= MANY:
            index = self._library_words()
            best = best_of_library(index, words, self._max_docs)
            named = {folder: name for name, folder in self._candidates.folders.items()}
            return [named[index.documents[number].folder] for number in best]
        looked_at: list[str] = []
        best = best_documents(self._each(names, looked_at), words, self._max_docs)
        return [looked_at[number] for number in best]

    def _library_words(self) -> LibraryWords:
        """The words of all documents that may be asked; made again when one is left out."""
        candidates, names = self._candidates, {v: k for k, v in self._candidates.folders.items()}
        if self._all_words is None or self._all_words[0] != len(self.skipped):

            def leave_out(facts: Facts, error: LongctxError) -> None:
                self._skip(names[facts.folder], error)

            wanted = [f for f in candidates.manifests if names[f.folder] not in self.skipped]
            with stage(_log, "index", f"the words of {len(wanted):,} documents found"):
                index = LibraryWords(candidates.library, wanted, candidates.partial, leave_out)
            self._all_words = len(self.skipped), index
        return self._all_words[1]

    def _each(self, names: list[str], looked_at: list[str]) -> Iterator[Document]:
        """Opens documents one after another; their names are added to `looked_at`."""
        for name in names:
            with ExitStack() as held:
                try:
                    document = held.enter_context(self._reading(name))
                except (NotFound, Locked, StateMismatch) as error:
                    self._skip(name, error)
                    continue
                document.require_model(self._fingerprint)
                looked_at.append(name)
                yield document

    def _opened(self, names: list[str]) -> tuple[Document, ...]:
        """Documents by name, held open until others are asked.

        Raises:
            NotFound, Locked: a named document, or every document, is unavailable.
            StateMismatch: a named document is damaged.
        """
        self._close_others(names)
        for name in names:
            if name not in self._open:
                self._hold(name)
        documents = tuple(self._open[name][0] for name in names if name in self._open)
        if not documents:
            raise none_left("no document can be asked", self.skipped)
        return documents

    def _reading(self, name: str) -> AbstractContextManager[Document]:
        candidates = self._candidates
        return candidates.library.reading(candidates.folders[name], candidates.partial)

    def _hold(self, name: str) -> None:
        with ExitStack() as held:
            try:
                document = held.enter_context(self._reading(name))
            except (NotFound, Locked, StateMismatch) as error:
                self._skip(name, error)
                return
            document.require_model(self._fingerprint)
            self._changed[name] = changed_sources(document.manifest.sources)
            self._open[name] = document, held.pop_all()
        _log.info("document %s: opened, %s tokens", name, f"{document.manifest.tokens:,}")

    def leave_out(self, error: StateMismatch) -> None:
        """See `Looking.leave_out`."""
        for name, folder in self._candidates.folders.items():
            if folder == error.document and name not in self.skipped:
                self._skip(name, error)
                self._close_others([other for other in self._open if other != name])
                return
        raise error

    def _skip(self, name: str, error: LongctxError) -> None:
        """Skips a document that is unavailable or damaged, unless the user named it."""
        if self._candidates.named:
            raise error
        self._left_out(name, why_gone(error))

    def _left_out(self, name: str, why: str) -> None:
        self.skipped[name] = why
        _log.info("document %s is left out: it %s", name, why)
        self._on_left_out(name, why)

    def _close_others(self, names: list[str]) -> None:
        for name in [name for name in self._open if name not in names]:
            self._open.pop(name)[1].close()
            del self._changed[name]

    def _state(self, way: Answering, chosen: Tensor) -> dict[str, Any]:
        manifests = [document.manifest for document in way.documents]
        parts = split(chosen, [manifest.tokens for manifest in manifests])
        asked = [_asked(*pair) for pair in zip(manifests, parts, strict=True)]
        skipped = [{"name": name, "why": why} for name, why in self.skipped.items()]
        told = {part["name"] for part in asked} | self.skipped.keys()
        others = [name for name in self._candidates.folders if name not in told]
        more = {"asked": asked, "left_out": len(others), "not_asked": others, "skipped": skipped}
        return super()._state(way, chosen) | more


def _asked(manifest: Manifest, gathered: Tensor) -> dict[str, Any]:
    return {"name": manifest.name, "tokens": manifest.tokens, "gathered": len(gathered)}
