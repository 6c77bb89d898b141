"""A question that the reader answers, from what a search found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from longctx.core.ask.clock import Clock
from longctx.core.ask.follow_up import Exchange, joined
from longctx.core.ask.pointing import Searched, pointed_answer
from longctx.core.common.device import choose_device, dtype_name, set_threads
from longctx.core.reader import weights
from longctx.core.reader.pointing import reader
from longctx.core.retrieve.gather_by import READER, USUAL

if TYPE_CHECKING:
    from longctx.core.api.words_alone import Opened
    from longctx.core.ask.answer import Answer
    from longctx.core.ask.asking import Asking
    from longctx.core.ask.based import Based


@dataclass(frozen=True)
class Pointing:
    """A question for the reader.

    Attributes:
        question: the user's words.
        before: earlier questions and answers that it refers to.
        device: where to compute, as the user names it.
        threads: CPU threads; None: see `set_threads`.
        most, tokens, gather_by, anyway: as of `Askable.ask`: `passages`, `gather` and so on.
    """

    question: str
    before: Sequence[Exchange]
    device: str
    threads: int | None
    most: int | None
    tokens: int | None
    gather_by: str | None
    anyway: bool

    def by_stored(
        self, opened: "Opened", source: str, on_text: Callable[[str], None]
    ) -> "tuple[Answer, Based]":
        """The answer from stored words and vectors; no model of a document is loaded."""
        clock, words = Clock(opened.load_s), joined(self.question, self.before)
        # The reader orders what it reads anyway.
        ranked = opened.ranked(words, USUAL if source == READER else source)
        searched = Searched(opened.documents, opened.index, ranked, words)
        answer, found = self._answer(searched, clock, on_text)
        named = {passage.document for passage in answer.passages}
        opened.look_at([n for n, facts in enumerate(opened.facts) if facts.name in named])
        return self._told(answer, opened.state(source, [])), found

    def by_model(self, session: "Asking", on_text: Callable[[str], None]) -> "tuple[Answer, Based]":
        """The answer from a session's ranking."""
        words = joined(self.question, self.before)
        looked = session.look(words, self.gather_by)
        clock = Clock(looked.found.timings.get("load_s", 0.0))
        searched = Searched(looked.documents, looked.index, looked.ranked, words)
        answer, found = self._answer(searched, clock, on_text)
        return self._told(answer, looked.found.state), found

    def _answer(
        self, searched: Searched, clock: Clock, on_text: Callable[[str], None]
    ) -> "tuple[Answer, Based]":
        device = choose_device(self.device)
        set_threads(self.threads)
        how = {"most": self.most, "tokens": self.tokens, "anyway": self.anyway}
        return pointed_answer(searched, self.question, device, clock, on_text=on_text, **how)

    def _told(self, answer: "Answer", state: dict[str, Any]) -> "Answer":
        """The answer with what is reported of the state."""
        own = {"device": choose_device(self.device), "dtype": prepared_dtype(self.device)}
        state = {**state, **answer.state, **own}
        return replace(answer, question=self.question, continues=tuple(self.before), state=state)


def prepared(device: str, threads: int | None) -> str:
    """Loads the reader on a device; its name."""
    set_threads(threads)
    reader(choose_device(device))
    return weights.config().name


def prepared_dtype(device: str) -> str:
    """The number format in which the reader computes there."""
    return dtype_name(reader(choose_device(device)).dtype)
