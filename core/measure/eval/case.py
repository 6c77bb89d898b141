"""What is asked in an evaluation: texts, questions, and what is right. Values alone."""

from dataclasses import dataclass


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
