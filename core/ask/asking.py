"""A question from its words to an answer: gather -> recompute, or recall -> decode.

Sessions over one document or several share this code. Nothing here asks which method is in use.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor

from longctx.core.ask.answer import INTERRUPTED, Answer, Found, decoded
from longctx.core.ask.answering import Answering, Begun, Question
from longctx.core.ask.based import Based, Looked, based, query_of, ranked_by_tokens, read_cited
from longctx.core.ask.candidates import without_damaged
from longctx.core.ask.clock import Clock
from longctx.core.ask.follow_up import Exchange, joined
from longctx.core.ask.gather import passages
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.quoting import quoted, quotes_by_default, require_quotable
from longctx.core.ask.refusing import reluctant
from longctx.core.ask.sentence import answering_sentence, quoted_sentence
from longctx.core.ask.state_checks import require_numbers
from longctx.core.common.device import dtype_name
from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Scores
from longctx.core.decode.decode import Generation
from longctx.core.engine.setup import Engine, memory_told, policy
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.evidence import judged

if TYPE_CHECKING:
    from longctx.core.ask.server.address import Server
    from longctx.core.ask.server.messages import Sent

_log = logging.getLogger(__name__)
T = TypeVar("T")

OUT_OF_MEMORY = "Use a smaller --gather or --max-new-tokens."


class Asking(ABC):
    """What a session does with a question, over one document or several.

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

    def ask(
        self,
        question: str,
        gather: int | None = None,
        sampling: Sampling | None = None,
        on_text: Callable[[str], None] = lambda text: None,
        decode: str | None = None,
        gather_by: str | None = None,
        passages: int | None = None,
        quote: bool | None = None,
        before: Sequence[Exchange] = (),
        on_sending: "Callable[[Sent], None]" = lambda sent: None,
        on_based: Callable[[Based], None] | None = None,
    ) -> Answer:
        """Answers a question from the state.

        Ctrl-C during decoding ends the answer; the text so far is returned.

        Args:
            question: the user's words.
            gather: tokens to recompute, prefix included; None: the profile's, or the method's.
            sampling: how to decode; the profile fills in what is not set.
            on_text: receives the answer's text as it is decoded.
            decode: decode policy, `NAME` or `NAME:OPTION=VALUE,...`; None: the setup's.
            gather_by: a gather source, of `gather_by.names()`; None: the profile's where passages
                are recomputed, else the method answers from all that it kept.
            passages: the most passages to put before the model; None: the profile's number.
            quote: whether the answer must be a stretch of the passages, or the phrase that they
                have none; None: as the profile says, where it can be.
            before: earlier questions and answers that the question refers to, in their order.
            on_sending: is told what is sent to another server, if one answers, before it is.
            on_based: is told what the answer was gathered from, once it is complete.

        Raises:
            UsageError: the question is empty or longer than the window, or the decode policy,
                `gather_by` or `quote` is unknown or does not fit how the document is asked; or
                another model would answer from what this one kept; or an option is not for
                another server's.
            LongctxError: `gather_by` needs scores that the document's method does not have.
            NoAnswer: another server was to answer, and does not.
        """
        answering, clock = self.engine.answering, Clock(self._load_s)
        given = sampling or Sampling()
        sampling = given.over(answering.profile.sampling)
        limit = sampling.max_new_tokens or answering.profile.max_new_tokens
        words, shown = joined(question, before), list[str]()

        def show(text: str) -> None:
            shown.append(text)
            on_text(text)

        def answered() -> tuple[Answer, Answering, Chosen]:
            way = self._way(words, gather_by)
            if self.server is not None:
                from longctx.core.ask.served import require_served  # few need what it imports

                require_served(given, decode, quote)
                encoded = self.engine.prompt.question(words)
                asked = Question(*encoded, 0, gather, words=words, passages=passages, own=question)
                return self._served(self.server, way, clock, asked, given, show, on_sending)
            decoding = answering.decoding if decode is None else policy(decode, answering.profile)
            how = way, decoding, answering.files.eos_ids(), answering.files.tokenizer
            quotes = quotes_by_default(answering.profile, *how) if quote is None else quote
            if quote:
                require_quotable(*how)
            encoded = self.engine.prompt.question(words)
            asked = Question(*encoded, limit, gather, decoding, words, passages, question)
            return self._ask(way, clock, asked, sampling, show, quotes)

        def leave_out(error: StateMismatch) -> None:
            if shown:  # another answer behind it would be taken for its end
                raise error
            self.leave_out(error)

        with memory_told(answering, OUT_OF_MEMORY):
            answer, way, chosen = without_damaged(answered, leave_out)
        if on_based is not None:
            on_based(based(way, chosen))
        return replace(answer, question=question, continues=tuple(before))

    def _ask(
        self,
        way: Answering,
        clock: Clock,
        asked: Question,
        sampling: Sampling,
        on_text: Callable[[str], None],
        quote: bool,
    ) -> tuple[Answer, Answering, Chosen]:
        answering, decoding = self.engine.answering, asked.decoding
        begun = way.begin(asked, lambda: clock.mark("gather_s"))
        require_numbers(begun.hidden, way.documents)
        if self._spares:  # while nothing of the answer was shown
            read_cited(way, begun.found())
        if quote:
            told = self._quoted(way, begun, asked.answer, on_text, clock)
        else:
            told = self._generated(begun, asked.answer, sampling, on_text, clock)
        counts = {"question": begun.question, "answer": told.pop("count")}
        counts["dropped"] = begun.dropped
        rate = told["tokens_per_s"]
        _log.info(
            "answered with %s tokens by %s, %s tokens/s", counts["answer"], decoding.name, rate
        )
        spent = decoded(decoding, told.pop("spent"))
        chosen, span = begun.found(), told.pop("span", None)
        told["sentence"] = (
            answering_sentence(way.documents, chosen, query_of(way, asked), told["answer"])
            if span is None
            else quoted_sentence(span)
        )
        found = self._found(way, asked, chosen, counts, clock)
        read = begun.read and begun.read.told()
        if read:
            what = f"{read['tokens']:,} tokens in {read['passages']:,} passages ({read['order']})"
            _log.info("put before %s: %s", answering.files.name, what)
        found.state.update(answer_model=answering.files.name, read=read)
        return Answer(**vars(found), **spent, **told), way, chosen

    def _served(
        self,
        server: "Server",
        way: Answering,
        clock: Clock,
        asked: Question,
        sampling: Sampling,
        on_text: Callable[[str], None],
        on_sending: "Callable[[Sent], None]",
    ) -> tuple[Answer, Answering, Chosen]:
        """The answer of another server's model; see `served.py`."""
        from longctx.core.ask.served import GATHER, Serving, served

        assert isinstance(way, Gatherer), "documents that answer by recall are refused"
        chosen = way.for_text(asked, asked.gather or GATHER)
        clock.mark("gather_s")
        counts = {"question": len(asked.ids), "answer": 0, "dropped": 0}
        found = self._found(way, asked, chosen, counts, clock)
        backend = self.engine.files.tokenizer.backend_tokenizer
        count = lambda text: len(backend.encode(text, add_special_tokens=False).ids)  # noqa: E731
        serving = Serving(server, sampling, on_text, on_sending, count)
        answer = served(serving, way, chosen, found, query_of(way, asked), clock.mark)
        return replace(answer, timings=clock.timings()), way, chosen

    def _generated(
        self,
        begun: Begun,
        limit: int,
        sampling: Sampling,
        on_text: Callable[[str], None],
        clock: Clock,
    ) -> dict[str, Any]:
        """Decodes freely; returns what the `Answer` says of that."""
        answering = self.engine.answering
        ends = answering.files.eos_ids()
        parts = begun.policy, begun.hidden, begun.prompt, sampling, limit, ends
        least = answering.profile.reading.refusal if begun.read else 0.0
        first = reluctant(answering.files.tokenizer, least)
        answer = Generation(answering.decoder, *parts, first=first)
        answer.on_token = lambda: clock.mark("first_token_s")  # the first time counts
        text, whole = self._text(answer, on_text)
        rate = answer.tokens_per_s
        return {
            "answer": text,
            "count": answer.count,
            "stop": answer.stop if whole else INTERRUPTED,
            "spent": begun.policy.spent(),
            "tokens_per_s": None if rate is None else round(rate, 4),
        }

    def _quoted(
        self,
        way: Answering,
        begun: Begun,
        limit: int,
        on_text: Callable[[str], None],
        clock: Clock,
    ) -> dict[str, Any]:
        """The same for a quotation; Ctrl-C leaves none."""
        answering = self.engine.answering
        parts = answering.decoder, answering.files.tokenizer, begun, way.documents
        told: dict[str, Any] = {"answer": "", "count": 0, "stop": INTERRUPTED, "tokens_per_s": None}
        try:
            found = quoted(*parts, sorted(answering.files.eos_ids()), limit)
        except KeyboardInterrupt:
            return {**told, "spent": begun.policy.spent()}
        clock.mark("first_token_s")
        on_text(found.text)
        told |= {"answer": found.text, "count": found.tokens, "stop": "end"}
        told |= {"quote": found.quote, "quoting": found.quoting, "span": found.span}
        return {**told, "spent": found.spent}

    def _text(self, answer: Generation, on_text: Callable[[str], None]) -> tuple[str, bool]:
        """The text of an answer, and whether it is complete; Ctrl-C keeps the text so far."""
        pieces: list[str] = []
        try:
            for piece in answer.texts(self.engine.answering.files.tokenizer):
                # A model's answer begins with the space after "Answer:"; the user's does not.
                piece = piece if pieces else piece.lstrip()
                if piece:
                    pieces.append(piece)
                    on_text(piece)
        except KeyboardInterrupt:
            return "".join(pieces).strip(), False
        return "".join(pieces).strip(), True

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
    ) -> Found:
        manifests = [document.manifest for document in way.documents]
        query = query_of(way, question)
        runs = passages(way.documents, chosen.tokens, chosen.scores.raw, query)
        require_numbers(torch.tensor([run.score for run in runs]), way.documents)
        found, evidence = judged(way.index, question.words)
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
            "without_embeddings": [*way.without],
            "counted_again": [*way.index.counted_again],
            "model": self.engine.files.name,
            "device": self.engine.device,
            "dtype": dtype_name(self.engine.dtype),
        }
