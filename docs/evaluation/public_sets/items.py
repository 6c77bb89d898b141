"""What a set consists of: documents, questions, and what is known of their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DEVELOPMENT, HELD = "development", "held"  # halves: to choose by, and to compare by

Record = dict[str, Any]  # one result: an answer, or a ranking; as JSON


class BadSet(Exception):
    """A set is incomplete or damaged; the message names the member."""


@dataclass(frozen=True)
class Evidence:
    """Where an answer stands in a document: a page, or bytes of a source.

    Attributes:
        source: name of the source; of a page, the document.
        key: the set's own name of the place (`D3:7`, `p. 12`).
        start, end: bytes of the source; 0 and 0 for a page.
    """

    source: str
    key: str
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Question:
    """One question of a set.

    Attributes:
        name: unique in its set, and the same in every run.
        document: name of the document that it is about.
        part: what its results are counted under (`financial location`).
        half: DEVELOPMENT or HELD.
        text: the question.
        right: the right answer; empty where the set has none.
        words: how many words of an answer count.
        answerable: the document has the answer.
        evidence: places that together hold the answer; empty where the set names none.
    """

    name: str
    document: str
    part: str
    half: str
    text: str
    right: str = ""
    words: int = 30
    answerable: bool = True
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class PublicSet:
    """A set as it was read.

    Attributes:
        name: `lara`, `locomo` or `financebench`.
        digest: SHA-256 of its members; results of other members do not mix.
        documents: content of each document by name, then by the name of its file.
        questions: in order.
        remarks: what a reader of the results must know, such as keys that name nothing.
    """

    name: str
    digest: str
    documents: dict[str, dict[str, bytes]]
    questions: Sequence[Question]
    remarks: Sequence[str] = field(default=())
