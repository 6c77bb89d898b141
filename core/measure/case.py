"""Texts, questions, right answers, and the tasks that make them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """Bytes of a source.

    Attributes:
        start, end: byte offsets of `source[start:end]`.
        source: name of the source, or end of its path; empty: any source.
    """

    start: int
    end: int
    source: str = ""


@dataclass(frozen=True)
class CaseQuestion:
    """A question and its right answers.

    Attributes:
        kind: results are counted by kind.
        question: what is asked.
        answers: right answers; each evaluation compares in its own way.
        spans: where the document says it; empty: unknown.
    """

    kind: str
    question: str
    answers: tuple[str, ...]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Case:
    """A text and questions about it.

    Attributes:
        name: unique in a run.
        text: the document's.
        queries: the questions.
    """

    name: str
    text: str
    queries: tuple[CaseQuestion, ...]


def is_named(name: str, wanted: str) -> bool:
    """Whether a source has this name or a path that ends in it; an empty name fits every source."""
    name, wanted = name.replace("\\", "/"), wanted.replace("\\", "/")
    return not wanted or name == wanted or name.endswith(f"/{wanted}")


@dataclass(frozen=True)
class Task:
    """Makes cases of any length, and scores answers.

    Attributes:
        name: as on the command line.
        make: makes cases from a fast transformers tokenizer, the tokens of a document, the number
            of samples, and a seed; the same arguments give the same cases.
        score: maps right answers and an answer to a score from 0 to 1.
        max_new_tokens: limit for an answer.
        together: all samples are questions about one document; else each has its own.
    """

    name: str
    make: Callable[[Any, int, int, int], Iterator[Case]]
    score: Callable[[tuple[str, ...], str], float]
    max_new_tokens: int
    together: bool = False

    def cases(self, samples: int) -> int:
        """The number of documents for `samples` samples."""
        return 1 if self.together else samples
