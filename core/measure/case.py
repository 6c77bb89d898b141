"""What is asked: texts, questions, what is right, and the tasks that make them. Values alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """Bytes of a source.

    Attributes:
        start, end: byte offsets; `source[start:end]` is what is meant.
        source: the source's name, or its last parts; empty: any source.
    """

    start: int
    end: int
    source: str = ""


@dataclass(frozen=True)
class Query:
    """A question and what is right.

    Attributes:
        kind: of the question, by which results are counted.
        question: the words that are asked.
        answers: what an answer is compared with; how is up to the evaluation.
        spans: where the document says it; empty: unknown.
    """

    kind: str
    question: str
    answers: tuple[str, ...]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Case:
    """A text and the questions to it.

    Attributes:
        name: tells it from the others of a run.
        text: of the document.
        queries: the questions.
    """

    name: str
    text: str
    queries: tuple[Query, ...]


def is_named(name: str, wanted: str) -> bool:
    """Whether a source's name is the wanted one or has it as its last parts; empty: any is."""
    name, wanted = name.replace("\\", "/"), wanted.replace("\\", "/")
    return not wanted or name == wanted or name.endswith(f"/{wanted}")


@dataclass(frozen=True)
class Task:
    """One kind of work, at any length.

    Attributes:
        name: as people know it.
        make: from a fast transformers tokenizer, the tokens of a document, how many samples, and a
            seed: the cases, one after another, always the same ones.
        score: from what is right and an answer: 0 to 1.
        max_new_tokens: that an answer needs.
        together: all samples are questions to one document; else each has its own.
    """

    name: str
    make: Callable[[Any, int, int, int], Iterator[Case]]
    score: Callable[[tuple[str, ...], str], float]
    max_new_tokens: int
    together: bool = False

    def cases(self, samples: int) -> int:
        """How many documents so many samples are."""
        return 1 if self.together else samples
