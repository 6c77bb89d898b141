"""What a session has, and what it finds for a query, short of an answer.

Sessions over one document or several share this code. Nothing here asks which method is in use.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor

from longctx.core.ask.answer import Found
from longctx.core.ask.answering import Answering, Question
from longctx.core.ask.based import Looked, query_of, ranked_by_tokens
from longctx.core.ask.candidates import without_damaged
from longctx.core.ask.clock import Clock
from longctx.core.ask.gather import passages
from longctx.core.ask.state_checks import require_numbers
from longctx.core.common.device import dtype_name
from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Scores
from longctx.core.engine.setup import Engine
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.evidence import judged

if TYPE_CHECKING:
    from longctx.core.ask.server.address import Server

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Looking(ABC):
    """What a session does with a query, over one document or several.

    Use it as a context manager, or `close` it: it locks its documents against deletion.

    Attributes:
        engine: the model that read the documents, with the one that answers.
        server: another server, whose model answers; None: none does.
    """

    engine: Engine
    server: "Server | None"
    _load_s: float
    _held: ExitStack
    _spares = False  # whether a document that is damaged is left out

    @property
    @abstractmethod
    def changed(self) -> list[str]:
        """Names of sources whose files have changed since they were read."""

    @property
    def answers_elsewhere(self) -> bool:
        """Whether another model answers than has read the documents."""
        return self.engine.answerer is not None or self.server is not None

    @abstractmethod
    def _way(self, words: str, gather_by: str | None, finding: bool = False) -> Answering:
        """How a question is answered, or passages are found, for a gather source."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def leave_out(self, error: StateMismatch) -> None:
        """Goes on without the document that is damaged, if the user did not name it.

        Raises:
            StateMismatch: the error itself, if there is no such document.
            NotFound: no document is left.
        """
        raise error

    def without_damaged(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives once no damaged document is in its way; see `leave_out`."""
        return without_damaged(attempt, self.leave_out)

    def close(self) -> None:
        """Releases the documents, which nobody could delete or replace until now."""
        self._held.close()

    def find(self, query: str, gather: int | None = None, gather_by: str | None = None) -> Found:
        """The best passages for a query; nothing is decoded, so they may exceed the window.

        Args:
            query: the user's words.
            gather: tokens to gather; None: the method's.
            gather_by: a gather source, of `gather_by.names()`; None: the profile's.

        Raises:
            UsageError: as `ask`.
            LongctxError: the document's method keeps nothing to search by.
        """

        def found() -> Found:
            clock, way, asked = self._looking_for(query, gather_by)
            (chosen,) = way.find(asked, [gather])
            clock.mark("gather_s")
            counts = {"question": len(asked.ids), "answer": 0, "dropped": 0}
            return self._found(way, asked, chosen, counts, clock)

        return self.without_damaged(found)

    def look(self, query: str, gather_by: str | None = None) -> Looked:
        """How well each window fits a query; `core/retrieve/finding.py` makes hits of it.

        Where a method's own rule scores tokens, a window's score is that of its best token. Who
        reads passages of the result does both inside `without_damaged`.

        Args:
            query: the user's words.
            gather_by: as of `find`.

        Raises:
            UsageError, LongctxError: as `find`.
        """
        clock, way, asked = self._looking_for(query, gather_by)
        (chosen,) = way.find(asked, [0])
        clock.mark("gather_s")
        counts = {"question": len(asked.ids), "answer": 0, "dropped": 0}
        found = self._found(way, asked, chosen, counts, clock)
        ranked = chosen.ranked or ranked_by_tokens(way, chosen)
        return Looked(found, way.documents, way.index, ranked)

    def gathered(self, query: str, gather_by: str | None, budgets: Sequence[int]) -> list[Tensor]:
        """The tokens that `find` gathers at each budget, (n,) each, ascending.

        Args:
            query: the user's words.
            gather_by: as of `find`.
            budgets: tokens to gather at most.
        """
        _, way, asked = self._looking_for(query, gather_by)
        return [chosen.tokens for chosen in way.find(asked, budgets)]

    def score(self, query: str, gather_by: str | None = None) -> Scores:
        """The scores of all tokens for a query, on the CPU; `gather_by` as in `find`."""
        _, way, asked = self._looking_for(query, gather_by)
        return way.score(asked)

    def _looking_for(self, query: str, gather_by: str | None) -> tuple[Clock, Answering, Question]:
        clock, way = Clock(self._load_s), self._way(query, gather_by, finding=True)
        return clock, way, Question(*self.engine.prompt.question(query), words=query)

    def _found(
        self,
        way: Answering,
        question: Question,
        chosen: Chosen,
        counts: dict[str, int],
        clock: Clock,
        verdict: tuple[str, float | None] | None = None,
    ) -> Found:
        manifests = [document.manifest for document in way.documents]
        query = query_of(way, question)
        runs = passages(way.documents, chosen.tokens, chosen.scores.raw, query)
        require_numbers(torch.tensor([run.score for run in runs]), way.documents)
        found, evidence = verdict or judged(way.index, question.words)
        timings = clock.timings()
        gathered = f"{len(chosen.tokens):,} tokens in {len(runs):,} passages"
        _log.info("gathered %s by %s: %s", gathered, way.gathers_by, timings)
        return Found(
            question=question.words,
            found=found,
            evidence=evidence,
            documents=[manifest.name for manifest in manifests],
            passages=runs,
            tokens={
                "document": sum(manifest.tokens for manifest in manifests),
                "gathered": len(chosen.tokens),
                **counts,
            },
            timings=timings,
            state=self._state(way, chosen.tokens),
        )

    def _state(self, way: Answering, chosen: Tensor) -> dict[str, Any]:
        """What is reported of the state that was asked; `chosen` are token indices of `way`."""
        statuses = {document.manifest.status for document in way.documents}
        return {
            "reused_tokens": sum(document.manifest.tokens for document in way.documents),
            "status": max(statuses),  # "reading" if any is
            "changed_sources": self.changed,
            "checked_bytes": sum(document.checked_bytes for document in way.documents),
            "method": way.name,
            "gathered_by": way.gathers_by,
            "without_vectors": [*way.without],
            "words_only": [],  # a session has what was encoded
            "counted_again": [*way.index.counted_again],
            "model": self.engine.files.name,
            "device": self.engine.device,
            "dtype": dtype_name(self.engine.dtype),
        }
