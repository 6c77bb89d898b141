"""A document opened for one search without torch; it looks to its users as one of `core/ask/`."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.common.telemetry import facts, stage
from longctx.core.engine.choice import Setup
from longctx.core.light.covered import ROWS, Case, NotCovered, case_of, may_be
from longctx.core.light.maxima import Maxima, maxima
from longctx.core.light.reading import Reading, Rows
from longctx.core.retrieve import gather_by as gather_sources
from longctx.core.retrieve.evidence import judged
from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.hit import SCHEMA_VERSION
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library
from longctx.core.store.manifest import UNITS, Manifest
from longctx.core.store.sameness import changed_sources
from longctx.core.store.shards import AGAIN

_log = logging.getLogger(__name__)
T = TypeVar("T")
PIECE = 1 << 15  # rows that are read at a time


@dataclass(frozen=True)
class Found:
    """What is reported of a search, without passages; see `Found` in `core/ask/answer.py`."""

    question: str
    found: str
    evidence: float | None
    documents: list[str]
    passages: list[Any]
    tokens: dict[str, int]
    timings: dict[str, float]
    state: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `find`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


@dataclass(frozen=True)
class Looked:
    """The result of a search; see `Looked` in `core/ask/based.py`."""

    found: Found
    documents: tuple[Document, ...]
    index: PassageIndex
    ranked: Ranked


class LightSession:
    """An open document that is searched once. Use it as a context manager, or `close` it.

    Attributes:
        document: the open document.
        changed: names of its sources whose files had changed when it was opened.
    """

    def __init__(
        self, document: Document, case: Case, question: str, held: ExitStack, began: float
    ):
        self.document, self._case, self._question, self._held = document, case, question, held
        self.changed = changed_sources(document.manifest.sources)
        self._load_s = time.perf_counter() - began
        self._tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the document, which nobody could delete or replace until now."""
        self._held.close()

    def without_damaged(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives: a document that is asked alone is not left out."""
        return attempt()

    def look(self, query: str, gather_by: str | None = None) -> Looked:
        """How well each passage fits the query that it was opened for.

        Raises:
            StateMismatch: the document is damaged.
        """
        assert query == self._question
        assert gather_by in (None, self._case.gathers_by)
        started, document = time.perf_counter(), self.document
        ids, own = self._case.prompt.question_ids(query)
        index = PassageIndex(document)
        sought = Sought(query, lambda: self._maxima(ids, own, index), index)
        ranked = gather_sources.load(self._case.gathers_by).rank(sought)
        found, evidence = judged(index, query)
        spent = round(time.perf_counter() - started, 4)
        timings = {"load_s": round(self._load_s, 4), "gather_s": spent, "total_s": spent}
        _log.info(
            "ranked %s passages by %s: %s", len(ranked.passages), self._case.gathers_by, timings
        )
        told = Found(
            question=query,
            found=found,
            evidence=evidence,
            documents=[document.manifest.name],
            passages=[],
            tokens={
                **{"document": document.manifest.tokens, "gathered": 0, "question": len(ids)},
                **{"answer": 0, "dropped": 0},
            },
            timings=timings,
            state=self._state(index),
        )
        return Looked(told, (document,), index, ranked)

    def _maxima(self, ids: list[int], own: list[bool], index: PassageIndex) -> Maxima:
        """The best cosine of each of the user's tokens in each passage."""
        reading = Reading(self._case.model, self._case.options, self._case.caches)
        made = None
        if self._case.caches is None:
            prefix = np.array(self._case.prompt.prefix_ids(), np.int64)
            with stage(_log, "read_again", f"{self.document.manifest.name}: its cache made again"):
                made = self._read_again(reading, prefix)
        question = reading.question(np.array(ids, np.int64))
        asked = question.chosen(np.array(own))
        self._require_numbers(asked.scales)
        if self.document.manifest.is_bare and made is not None:
            pieces = iter([made])
        else:
            pieces = self._rows()
        return maxima(asked, pieces, index.passages)

    def _read_again(self, reading: Reading, prefix: np.ndarray) -> Rows:
        """Rows of a short document; the memory afterwards is what a question meets."""
        manifest = self.document.manifest
        if manifest.units == UNITS[0]:
            return reading.document(prefix, self._ids(0, manifest.tokens))
        parts = []
        sources = manifest.sources if manifest.is_bare else ()
        for source in (source for source in sources if source.tokens):
            alone = Reading(self._case.model, self._case.options, None)
            ids = self._ids(source.first_token, source.first_token + source.tokens)
            parts.append(alone.document(prefix, ids))
        parts.append(reading.document(prefix, self._ids(0, 0)))
        return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _ids(self, first: int, last: int) -> np.ndarray:
        """Tokens [first, last) of the document."""
        ids = self.document.array_take("tokens", np.arange(first, last), "ids").astype(np.int64)
        if ((ids < 0) | (ids >= self._case.files.config.vocab_size)).any():
            raise self._damaged("it has tokens that the model does not have")
        return ids

    def _rows(self) -> Iterator[Rows]:
        """The stored embeddings, a few megabytes at a time."""
        names = ("vectors", "scales")
        parts = (self.document.array_rows(ROWS, name, PIECE) for name in names)
        for vectors, scales in zip(*parts, strict=True):
            self._require_numbers(scales)
            yield Rows(vectors, scales)

    def _require_numbers(self, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise self._damaged("it leads to numbers that are none (NaN or infinity)")

    def _damaged(self, why: str) -> StateMismatch:
        manifest = self.document.manifest
        return StateMismatch(f"'{manifest.name}' is damaged", why, AGAIN, manifest.folder)

    def _state(self, index: PassageIndex) -> dict[str, Any]:
        """What is reported of the state that was searched."""
        manifest = self.document.manifest
        return {
            "reused_tokens": manifest.tokens,
            "status": manifest.status,
            "changed_sources": self.changed,
            "checked_bytes": self.document.checked_bytes,
            "method": manifest.method,
            "gathered_by": self._case.gathers_by,
            "without_embeddings": [],
            "counted_again": [*index.counted_again],
            "model": self._case.files.name,
            "device": "cpu",
            "dtype": "fp32",
        }

    def _tell(self) -> None:
        """Logs what was opened, as `core/ask/session.py` and `core/engine/setup.py` do."""
        manifest, size, files = self.document.manifest, self.document.size(), self._case.files
        facts(
            _log,
            "model %s (%s, window %s) on cpu in fp32, by numpy",
            *(files.name, files.config.model_type, f"{self._case.window:,}"),
            model={
                **{"name": files.name, "type": files.config.model_type},
                **{"parameters": files.num_parameters(), "window": self._case.window},
            },
            device={"device": "cpu", "name": "cpu", "dtype": "fp32", "threads": None},
        )
        facts(
            _log,
            "profile %s, method %s",
            *(self._case.profile, manifest.method),
            **{"profile": self._case.profile, "method": manifest.method},
        )
        facts(
            _log,
            "document %s: %s tokens of %s sources, %s bytes of state, read by %s",
            *(manifest.name, f"{manifest.tokens:,}", len(manifest.sources), f"{size:,}"),
            manifest.method,
            document={"name": manifest.name, "tokens": manifest.tokens, "state_bytes": size},
        )


def opened(
    library: Path,
    manifest: Manifest | Facts,
    question: str,
    gather_by: str | None,
    setup: Setup,
) -> LightSession | None:
    """A document ready to be searched, or None where torch must do it.

    Args:
        library: the library's folder.
        manifest: of the document, or its facts.
        question: what will be looked for.
        gather_by: the gather source that the user names.
        setup: the user's choices.

    Raises:
        NotFound, Locked, StateMismatch: the document cannot be opened.
    """
    if not may_be(setup, manifest, gather_by):
        return None
    began = time.perf_counter()
    with ExitStack() as held:
        document = held.enter_context(Library.open(library).reading(manifest.folder))
        try:
            case = case_of(document, gather_by)
            ids, own = case.prompt.question_ids(question)
        except (NotCovered, LongctxError):  # what is wrong is found and said there
            return None
        longest = min(case.options.chunk, case.window // 2)
        if len(ids) + len(case.prompt.prefix_ids()) > longest or not any(own):
            return None
        if max(ids) >= case.files.config.vocab_size:
            return None
        return LightSession(document, case, question, held.pop_all(), began)
