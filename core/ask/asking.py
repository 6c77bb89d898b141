"""A question from its words to an answer: gather -> recompute, or recall -> decode.

Sessions over one document or several share this code. Nothing here asks which method is in use.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longctx.core.ask.answer import INTERRUPTED, Answer, decoded
from longctx.core.ask.answering import Answering, Begun, Question
from longctx.core.ask.based import Based, based, query_of, read_cited
from longctx.core.ask.candidates import without_damaged
from longctx.core.ask.clock import Clock
from longctx.core.ask.follow_up import Exchange, joined
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.looking import Looking
from longctx.core.ask.refusing import PHRASE, is_refusal
from longctx.core.ask.sentence import answering_sentence
from longctx.core.ask.state_checks import require_numbers
from longctx.core.common.errors import StateMismatch
from longctx.core.decode.decode import Generation
from longctx.core.engine.setup import memory_told, policy
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.evidence import NO, judged

if TYPE_CHECKING:
    from longctx.core.ask.server.address import Server
    from longctx.core.ask.server.messages import Sent

_log = logging.getLogger(__name__)

OUT_OF_MEMORY = "Use a smaller --gather or --max-new-tokens."


class Asking(Looking):
    """What a session does with a question, over one document or several; see `Looking`."""

    def ask(
        self,
        question: str,
        gather: int | None = None,
        sampling: Sampling | None = None,
        on_text: Callable[[str], None] = lambda text: None,
        decode: str | None = None,
        gather_by: str | None = None,
        passages: int | None = None,
        before: Sequence[Exchange] = (),
        on_sending: "Callable[[Sent], None]" = lambda sent: None,
        on_based: Callable[[Based], None] | None = None,
        anyway: bool = True,
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
            passages: the most passages to put before the model; None: as many as fit.
            before: earlier questions and answers that the question refers to, in their order.
            on_sending: is told what is sent to another server, if one answers, before it is.
            on_based: is told what the answer was gathered from, once it is complete.
            anyway: answer also where `found` is "no", and give a sentence with every answer. If
                false, the answer is then "not in the text" without decoding, and there is no
                sentence with such an answer, also where it is the model's.

        Raises:
            UsageError: the question is empty or longer than the window, or the decode policy,
                `gather_by` is unknown or does not fit how the document is asked; or another model
                would answer from what this one kept; or an option is not for another server's.
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

                require_served(given, decode)
                encoded = self.engine.prompt.question(words)
                asked = Question(*encoded, 0, gather, words=words, passages=passages, own=question)
                asked = replace(asked, anyway=anyway)
                return self._served(self.server, way, clock, asked, given, show, on_sending)
            decoding = answering.decoding if decode is None else policy(decode, answering.profile)
            encoded = self.engine.prompt.question(words)
            asked = Question(*encoded, limit, gather, decoding, words, passages, question, anyway)
            return self._ask(way, clock, asked, sampling, show)

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
    ) -> tuple[Answer, Answering, Chosen]:
        answering, decoding = self.engine.answering, asked.decoding
        begun = way.begin(asked, lambda: clock.mark("gather_s"))
        require_numbers(begun.hidden, way.documents)
        if self._spares:  # while nothing of the answer was shown
            read_cited(way, begun.found())
        verdict = judged(way.index, asked.words)
        if verdict[0] == NO and not asked.anyway:
            told = self._refused(begun, on_text, clock)
        else:
            told = self._generated(begun, asked.answer, sampling, on_text, clock)
        counts = {"question": begun.question, "answer": told.pop("count")}
        counts["dropped"] = begun.dropped
        rate = told["tokens_per_s"]
        _log.info(
            "answered with %s tokens by %s, %s tokens/s", counts["answer"], decoding.name, rate
        )
        spent = decoded(decoding, told.pop("spent"))
        chosen = begun.found()
        if asked.anyway or not is_refusal(told["answer"]):
            query = query_of(way, asked)
            told["sentence"] = answering_sentence(way.documents, chosen, query, told["answer"])
        found = self._found(way, asked, chosen, counts, clock, verdict)
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
        from longctx.core.ask.served import GATHER, Serving, served, unsent

        assert isinstance(way, Gatherer), "documents that answer by recall are refused"
        chosen = way.for_text(asked, asked.gather or GATHER)
        clock.mark("gather_s")
        counts = {"question": len(asked.ids), "answer": 0, "dropped": 0}
        found = self._found(way, asked, chosen, counts, clock)
        backend = self.engine.files.tokenizer.backend_tokenizer
        count = lambda text: len(backend.encode(text, add_special_tokens=False).ids)  # noqa: E731
        serving = Serving(server, sampling, on_text, on_sending, count)
        query = query_of(way, asked)
        if found.found == NO and not asked.anyway:
            answer = unsent(serving, found)
        else:
            answer = served(serving, way, chosen, found, query, clock.mark)
            if not asked.anyway and is_refusal(answer.answer):
                answer = replace(answer, sentence=None)
        return replace(answer, timings=clock.timings()), way, chosen

    def _refused(
        self, begun: Begun, on_text: Callable[[str], None], clock: Clock
    ) -> dict[str, Any]:
        """Decodes nothing: the text seems to have no answer."""
        clock.mark("first_token_s")
        on_text(PHRASE)
        told = {"answer": PHRASE, "count": 0, "stop": "end", "tokens_per_s": None}
        return {**told, "spent": begun.policy.spent()}

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
        answer = Generation(answering.decoder, *parts)
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
