"""A segment: the words of many documents in one table, as a library's word index keeps them.

Segments are made of documents' own tables, and merged. As in a table, a word belongs to the passage
in which it begins; passages are numbered through the segment's documents. Knows no scores, and no
rules about what is merged when.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.word_tables import Table
from longctx.core.store.manifest import Manifest

# Of each passage: words, document, source, tokens, first byte in its source.
COLUMNS = ("lengths", "documents", "sources", "tokens", "starts")


class Arrays(Protocol):
    """Where a segment's tensors are: in memory, or in a file."""

    def array(self, name: str) -> np.ndarray:
        """A whole tensor."""
        ...

    def array_rows(self, name: str, first: int, last: int) -> np.ndarray:
        """Rows [first, last) of one."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Tensors in memory, with the interface of a file."""

    arrays: Mapping[str, np.ndarray]

    def array(self, name: str) -> np.ndarray:
        """A whole tensor."""
        return self.arrays[name]

    def array_rows(self, name: str, first: int, last: int) -> np.ndarray:
        """Rows [first, last) of one."""
        return self.arrays[name][first:last]


class Segment:
    """Searches a segment; its tensors are read in part, and checked as they are.

    Args:
        arrays: its tensors.
        count: how many documents it covers.

    Attributes:
        columns: by name of `COLUMNS`, one number for each passage, (P,).
        terms: the stems, each between two newlines.
        postings: how many it has.

    Raises:
        StateMismatch: the tensors contradict one another.
    """

    def __init__(self, arrays: Arrays, count: int):
        self.arrays = arrays
        self.columns = {name: arrays.array(name) for name in COLUMNS}
        self.terms = b"\n" + arrays.array("terms").tobytes()
        self._heads = arrays.array("heads")
        self.postings = int(self._heads[-1]) if len(self._heads) else -1
        self._check(count)

    def __len__(self) -> int:
        return len(self.columns["lengths"])

    def _check(self, count: int) -> None:
        heads, documents = self._heads, self.columns["documents"]
        _require(len(heads) == self.terms.count(b"\n") and heads[0] == 0)
        _require(not (np.diff(heads) < 0).any())
        _require(all(len(values) == len(self) for values in self.columns.values()))
        _require(not any((values < 0).any() for values in self.columns.values()))
        _require(not (np.diff(documents) < 0).any() and documents.max(initial=-1) < count)

    def find(self, stem: str) -> tuple[np.ndarray, np.ndarray]:
        """The passages that have a stem, ascending, and how often.

        Raises:
            StateMismatch: a part of the segment is damaged.
        """
        place = self.terms.find(b"\n%s\n" % stem.encode())
        if place < 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        number = self.terms.count(b"\n", 0, place)
        first, last = self._heads[number : number + 2].tolist()
        passages = self.arrays.array_rows("passages", first, last)
        counts = self.arrays.array_rows("counts", first, last)
        _require(len(passages) == len(counts) == last - first and bool(counts.all()))
        _require(passages.min(initial=0) >= 0 and passages.max(initial=-1) < len(self))
        _require(not (np.diff(passages) <= 0).any())
        return passages, counts

    def part(self, keep: np.ndarray) -> "Part":
        """The segment's words of some documents.

        Args:
            keep: (D,) bool, the documents.

        Raises:
            StateMismatch: a part of the segment is damaged.
        """
        kept = keep[self.columns["documents"]]
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        documents = (np.cumsum(keep) - 1)[self.columns["documents"]]
        passages = self.arrays.array("passages")
        _require(len(passages) == self.postings and passages.max(initial=-1) < len(self))
        _require(passages.min(initial=0) >= 0)
        return Part(
            terms=self.terms[1:].split(b"\n")[:-1],
            heads=self._heads,
            passages=numbers[passages],
            counts=self.arrays.array("counts"),
            columns={n: v[kept] for n, v in {**self.columns, "documents": documents}.items()},
            documents=int(keep.sum()),
        )


@dataclass(frozen=True)
class Part:
    """Words to be put into one segment with others.

    Attributes:
        terms: the stems.
        heads: (V + 1,) where the postings of each begin.
        passages: (P,) the passage of each posting; -1: it is left out.
        counts: (P,).
        columns: the tensors of `COLUMNS`; documents are numbered from 0.
        documents: how many.
    """

    terms: list[bytes]
    heads: np.ndarray
    passages: np.ndarray
    counts: np.ndarray
    columns: Mapping[str, np.ndarray]
    documents: int


def of_document(manifest: Manifest, tables: Iterable[Table]) -> list[Part]:
    """The words of a document.

    Args:
        manifest: the document's.
        tables: its word index; see `core/retrieve/word_tables.py`.

    Returns:
        A part for each table; together they are one document, that of the first.
    """
    tables, parts = list(tables), []
    ends = np.concatenate([*(table["tokens"] for table in tables), [manifest.tokens]])
    sizes = np.diff(ends.astype(np.int64)) if tables else np.empty(0, np.int64)
    place = 0
    for number, table in enumerate(tables):
        count = len(table["lengths"])
        parts.append(
            Part(
                terms=table["terms"].tobytes().split(b"\n")[:-1],
                heads=table["heads"],
                passages=table["passages"],
                counts=table["counts"],
                columns={
                    "lengths": table["lengths"],
                    "documents": np.zeros(count, np.int64),
                    "sources": table["sources"],
                    "tokens": sizes[place : place + count],
                    "starts": table["bytes"],
                },
                documents=int(number == len(tables) - 1),
            )
        )
        place += count
    return parts or [_nothing()]


def merged(parts: list[Part]) -> dict[str, np.ndarray]:
    """The tensors of the segment with the words of all parts, one after the other."""
    vocabulary: dict[bytes, int] = {}
    rows, passages, counts, first, documents = [], [], [], 0, 0
    columns: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for part in parts:
        ids = [vocabulary.setdefault(term, len(vocabulary)) for term in part.terms]
        row = np.repeat(np.array(ids, np.int64), np.diff(part.heads))
        kept = part.passages >= 0
        rows.append(row[kept])
        passages.append(part.passages[kept].astype(np.int64) + first)
        counts.append(part.counts[kept])
        for name, values in part.columns.items():
            columns[name].append(values + documents if name == "documents" else values)
        first += len(part.columns["lengths"])
        documents += part.documents
    return _sorted(vocabulary, *map(_joined, (rows, passages, counts))) | {
        name: _joined(values).astype(np.int64 if name == "starts" else np.int32)
        for name, values in columns.items()
    }


def _sorted(
    vocabulary: dict[bytes, int], rows: np.ndarray, passages: np.ndarray, counts: np.ndarray
) -> dict[str, np.ndarray]:
    """terms, heads, passages and counts in the order of the terms; those without a posting go."""
    used = np.bincount(rows.astype(np.int64), minlength=len(vocabulary))
    stems = sorted(stem for stem, number in vocabulary.items() if used[number])
    numbers = np.array([vocabulary[stem] for stem in stems], np.int64)
    rank = np.zeros(len(vocabulary), np.int64)
    rank[numbers] = np.arange(len(stems))
    order = np.argsort(rank[rows.astype(np.int64)], kind="stable")
    terms = bytearray(b"".join(stem + b"\n" for stem in stems))
    return {
        "terms": np.frombuffer(terms, np.uint8),
        "heads": np.concatenate([[0], np.cumsum(used[numbers])]).astype(np.int64),
        "passages": passages[order].astype(np.int32),
        "counts": counts[order].astype(np.uint8),
    }


def _nothing() -> Part:
    """The words of a document without tokens."""
    none = np.empty(0, np.int64)
    columns: dict[str, np.ndarray] = {name: none for name in COLUMNS}
    return Part([], np.zeros(1, np.int64), none, none.astype(np.uint8), columns, 1)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _require(holds: bool) -> None:
    if not holds:
        raise StateMismatch("the index of the library is damaged", "its parts do not fit together")
