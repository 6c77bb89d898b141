"""Questions at a document's end: encoded, counted, appended with their answers and marks.

Knows nothing of where questions come from.
"""

from dataclasses import dataclass

from longctx.profiles.recipe.data.documents.document import ANSWER, QUESTION, TEXT, Document
from longctx.profiles.recipe.data.haystacks import Haystacks


@dataclass(frozen=True)
class Asked:
    """An encoded question; `span` is where its needle is, if there is one."""

    question: list[int]
    answer: list[int]
    kind: str
    span: tuple[int, int] | None


class Questions:
    """Appends questions to documents, and text up to the documents' lengths."""

    def __init__(self, hay: Haystacks):
        self.hay, self.rng = hay, hay.rng
        self.heads = [hay.encode(text) for text in hay.settings.questions]
        self.tail = hay.encode(hay.settings.answer)

    def asked(
        self, question: str, answer: str, kind: str, span: tuple[int, int] | None = None
    ) -> Asked:
        """Encodes a question and its answer."""
        return Asked(self.hay.encode(" " + question), self.hay.encode(" " + answer), kind, span)

    def absent(self, question: str) -> Asked:
        """Encodes a question that the document does not answer."""
        return self.asked(question, self.hay.settings.refusal, "absent")

    def size(self, asked: Asked) -> int:
        """Most tokens that a question with its answer can take."""
        return len(asked.question) + len(asked.answer) + len(self.tail) + len(self.heads[0]) + 2

    def put(self, document: Document, asked: list[Asked]) -> None:
        """Appends the questions, each with its answer, and their marks."""
        body, head = document.tokens(), self.rng.choice(self.heads)
        for item in asked:
            document.add(head, QUESTION)
            ask = document.add(item.question, QUESTION)
            document.add(self.tail, QUESTION)
            start, end = document.add([*item.answer, self.hay.eos], ANSWER)
            document.answers.append((start, end, item.kind))
            if item.span:
                document.asks.append((*ask, *item.span))
                places = occurrences(body[slice(*item.span)].tolist(), item.answer)
                if len(places) == 1:
                    place = item.span[0] + places[0]
                    document.pairs += [(start - 1 + i, place + i) for i in range(len(item.answer))]

    def finish(self, document: Document, asked: list[Asked], length: int) -> Document:
        """Appends the questions that fit, and text up to `length` tokens."""
        fitting, room = [], length - document.length
        for item in asked:
            if self.size(item) <= room:
                fitting.append(item)
                room -= self.size(item)
        self.put(document, fitting)
        return self.pad(document, length)

    def pad(self, document: Document, length: int) -> Document:
        """Fills up a document with running text."""
        if document.length < length:
            document.add(self.hay.prose(length - document.length), TEXT)
        return document


def occurrences(text: list[int], part: list[int]) -> list[int]:
    """Where `part` begins in `text`."""
    return [
        i
        for i in range(len(text) - len(part) + 1)
        if text[i] == part[0] and text[i : i + len(part)] == part
    ]
