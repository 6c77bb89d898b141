"""Answers as `ask` prints them: one or many, as text with their passages or as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longctx.cli import cautions, other_server, progress, render
from longctx.cli.interrupt import INTERRUPTED
from longctx.cli.text import counted
from longctx.core.ask.follow_up import MOST, Exchange
from longctx.core.common.errors import NoAnswer, UsageError

if TYPE_CHECKING:
    from longctx.core.api.asking import Askable, Wishes
    from longctx.core.ask.answer import Answer, Possible
    from longctx.core.ask.place import Passage
    from longctx.core.ask.sentence import Sentence
    from longctx.core.report.answers import Shown

SOURCES = 5  # passages shown after an answer
ALSO = 2  # other answers shown


@dataclass
class Answers:
    """How questions are asked, and how their answers are printed.

    Attributes:
        asked: arguments of `Askable.ask`.
        json: print JSON objects.
        sources: print the sentence that answers and the best passages after an answer.
        last: the last answer, whole or interrupted; None: there is none yet.
        shown: gets what a page shows of each answer; None: no page is wanted.
    """

    asked: "Wishes"
    json: bool
    sources: bool
    last: "Answer | None" = None
    shown: "list[Shown] | None" = None

    def one(self, asked: "Askable", question: str, before: Sequence[Exchange] = ()) -> int:
        """Answers a question, even if Ctrl-C ends the answer.

        Args:
            asked: what to ask.
            question: the user's words.
            before: earlier questions that it refers to.

        Returns:
            The exit code: that of an interruption if Ctrl-C ended the answer, else 0.
        """
        wishes: Wishes = {**self.asked, "before": before, "on_sending": other_server.tell}
        if self.shown is not None:
            wishes["on_shown"] = self.shown.append
        if not self.json:
            wishes["on_text"] = _stream
        with progress.status("reading what was found"):
            answer = asked.ask(question, **wishes)
        self.last = answer
        if not self.json:
            render.line("")
        render.result(answer.as_dict(), self.json)
        if not self.json:
            self._tell_beside(answer)
        return INTERRUPTED if answer.interrupted else 0

    def many(self, asked: "Askable", questions: Iterable[str]) -> int:
        """One JSON object a line; a question that cannot be asked gives its error instead.

        Returns:
            The exit code: that of the last such error, or 0; Ctrl-C ends the whole run.
        """
        self.json, code = True, 0
        for question in questions:
            try:
                if self.one(asked, question):
                    return INTERRUPTED
            except (UsageError, NoAnswer) as error:
                code = error.exit_code
                failure = {"code": code, "message": str(error)}
                render.result({"question": question, "error": failure}, json=True)
        return code

    def exchanges(self) -> tuple[Exchange, ...]:
        """What the next question may refer to: the last one, and those that it referred to."""
        if self.last is None:
            return ()
        last = Exchange(self.last.question, self.last.answer)
        return (*self.last.continues, last)[-MOST:]

    def _tell_beside(self, answer: "Answer") -> None:
        """What is shown after the text of an answer."""
        if answer.interrupted:
            render.note(f"interrupted after {counted(answer.tokens['answer'], 'token')}")
            return
        cautions.warn_of_answer(answer, self.asked.get("anyway", True))
        if answer.also_possible and answer.found != "yes":
            also = "; ".join(
                _told(one, len(answer.documents) > 1) for one in answer.also_possible[:ALSO]
            )
            render.note(f"also possible: {also}")
        if self.sources:
            cite(answer, SOURCES)


def _told(one: "Possible", name: bool) -> str:
    """Another answer, and where it stands."""
    quote = one.quote
    place = f"{quote.document}: " * name + f"{quote.source}:{quote.place}"
    return f"{render.one_line(quote.text)} ({place})"


def _stream(text: str) -> None:
    """Shows a piece of an answer; with the first one, nothing is waited for any more."""
    progress.stop_drawing()
    render.stream(text)


def cite(answer: "Answer", most: int | None) -> None:
    """Prints the sentence that answers, then the best passages that show more than that.

    Args:
        answer: what they belong to.
        most: passages; None: all.
    """
    names, first = len(answer.documents) > 1, answer.sentence
    if first is not None:
        render.line("")
        render.sentence(first, name=names, answer=answer.answer)
    others = [passage for passage in answer.passages[:most] if not _repeats(passage, first)]
    if others:
        render.line("")
        render.passages(others, scores=False, names=names)


def _repeats(passage: "Passage", sentence: "Sentence | None") -> bool:
    """Whether the line by which a passage is shown is part of a sentence that is already."""
    if sentence is None or passage.start >= sentence.end or passage.end <= sentence.start:
        return False
    if (passage.document, passage.source) != (sentence.document, sentence.source):
        return False
    line = " ".join(passage.best_text.split()).lstrip("> ")
    return line in " ".join(sentence.line_text.split())
