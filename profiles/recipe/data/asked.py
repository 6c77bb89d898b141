"""Documents with questions: what every source of questions gives, and what training reads.

A file has one document per line, as JSON, and may be compressed (.xz).
"""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO, cast

Span = tuple[int, int]


@dataclass(frozen=True)
class Question:
    """A question to a document.

    Attributes:
        text: what is asked.
        answer: the right answer, as the model should give it; None: the document has none.
        evidence: characters [start, end) of the document that must be read to answer, whole
            sentences or lines. Several where the answer follows from several places together; none
            if there is no answer.
    """

    text: str
    answer: str | None
    evidence: tuple[Span, ...]


@dataclass(frozen=True)
class AskedDocument:
    """A document and questions to it.

    Attributes:
        kind: where it comes from: "fairytale", "book", "code", "log" and so on.
        text: the document.
        questions: none if it is only searched, or questions are yet to be made.
    """

    kind: str
    text: str
    questions: tuple[Question, ...]


def write(path: Path, documents: Iterable[AskedDocument]) -> None:
    """Writes documents, one per line."""
    with _opened(path, "wt") as file:
        for document in documents:
            file.write(json.dumps(asdict(document), ensure_ascii=False) + "\n")


def read(path: Path) -> Iterator[AskedDocument]:
    """The documents of a file, in order."""
    with _opened(path, "rt") as file:
        for line in file:
            yield _document(json.loads(line))


def _opened(path: Path, mode: Literal["rt", "wt"]) -> TextIO:
    if path.suffix == ".xz":
        return cast(TextIO, lzma.open(path, mode, encoding="utf-8"))
    return path.open(mode, encoding="utf-8")


def _document(value: dict) -> AskedDocument:
    questions = tuple(
        Question(one["text"], one["answer"], tuple((a, b) for a, b in one["evidence"]))
        for one in value["questions"]
    )
    return AskedDocument(value["kind"], value["text"], questions)
