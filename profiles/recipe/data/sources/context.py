"""A context with its questions, and documents made of several. Knows no source's particulars."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span
from longctx.profiles.recipe.data.sources.evidence import likely, located


@dataclass(frozen=True)
class Context:
    """A text and questions whose evidence counts from its start."""

    text: str
    questions: tuple[Question, ...]

    @classmethod
    def of(cls, text: str, asked: Sequence[tuple[str, list[str]]]) -> Self:
        """A context of records: pairs of a question and its accepted answers."""
        return cls(text, tuple(question(text, *pair) for pair in asked))


def question(text: str, asked: str, answers: Sequence[str]) -> Question:
    """A question with the first answer that the text has, in its wording; else the first one."""
    for answer in answers:
        if place := located(text, answer, asked):
            return Question(asked, place[0], (place[1],))
    return Question(asked, answers[0], likely(text, asked, answers[0]))


def document(kind: str, contexts: Sequence[Context], gaps: Sequence[str]) -> AskedDocument:
    """Puts contexts one behind the other; a question that two of them have is left out.

    Args:
        kind: the document's.
        contexts: in order.
        gaps: what stands before each of them.
    """
    times = Counter(one.text for context in contexts for one in context.questions)
    text, questions = "", []
    for context, gap in zip(contexts, gaps, strict=True):
        text += gap
        once = (one for one in context.questions if times[one.text] == 1)
        questions += [
            replace(one, evidence=tuple(moved(span, len(text)) for span in one.evidence))
            for one in once
        ]
        text += context.text
    return AskedDocument(kind, text, tuple(questions))


def moved(span: Span, by: int) -> Span:
    """A span of a text that now starts `by` characters later."""
    return span[0] + by, span[1] + by
