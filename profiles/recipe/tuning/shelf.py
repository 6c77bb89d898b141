"""Documents with questions as tokens, and the windows in which they are searched.

A window is 128 tokens of one document and begins at a multiple of 64, as in a search
(`core/retrieve`). Consecutive documents of one kind form groups, each searched as a whole: pieces
of one book are neighbours. Knows nothing of training.
"""

import multiprocessing
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from longctx.core.profile.prompt import PromptEncoder
from longctx.profiles.recipe.data.asked import AskedDocument, Question

STEP, WIDTH = 64, 128  # tokens
GROUP = 24  # documents, at most
BATCH = 400  # documents tokenized at a time
BORDER = re.compile(r"\n+|[.!?][\"'”’)\]]*\s+")  # noqa: RUF001
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Asked:
    """A question as tokens.

    Attributes:
        document: its number.
        question: the question in its template, up to the start of the answer.
        words: tokens [start, end) of `question` that are the user's words.
        answer: tokens of the answer, the end included.
        evidence: tokens [start, end) of the document that must be read to answer; none if the
            document has no answer.
        known: an answer exists.
    """

    document: int
    question: np.ndarray
    words: tuple[int, int]
    answer: np.ndarray
    evidence: Spans
    known: bool


@dataclass(frozen=True)
class Shelf:
    """Tokenized documents.

    Attributes:
        kinds: of each document.
        ids: (N,) int32 tokens of all documents, one after another.
        firsts: (documents + 1,) first token of each, and N.
        borders: (N,) bool, a line or a sentence begins at this token.
        asked: all questions.
        groups: first document of each group, and the number of documents.
        prefix, refusal, again: tokens before a document; of the answer that there is none; and
            between an answer and a next question.
    """

    kinds: list[str]
    ids: np.ndarray
    firsts: np.ndarray
    borders: np.ndarray
    asked: list[Asked]
    groups: np.ndarray
    prefix: np.ndarray
    refusal: np.ndarray
    again: np.ndarray

    def length(self, document: int) -> int:
        """Tokens of a document."""
        return int(self.firsts[document + 1] - self.firsts[document])

    def stretch(self, document: int, start: int, end: int) -> np.ndarray:
        """Tokens [start, end) of a document."""
        first = self.firsts[document]
        return self.ids[first + start : first + end]

    def group_of(self, document: int) -> int:
        """The group of a document."""
        return int(np.searchsorted(self.groups, document, "right")) - 1


def windows_of(evidence: Spans, length: int) -> set[int]:
    """The windows of a document of `length` tokens that hold some of the evidence."""
    found: set[int] = set()
    last = max(0, -(-(length - STEP) // STEP) - 1)
    for start, end in evidence:
        found |= set(range(max(0, start // STEP - 1), min(last, (end - 1) // STEP) + 1))
    return found


def window_count(length: int) -> int:
    """How many windows a document of `length` tokens has."""
    return max(1, -(-(length - STEP) // STEP))


@dataclass(frozen=True)
class _Part:
    """Some of a shelf's documents."""

    ids: np.ndarray
    borders: np.ndarray
    lengths: list[int]
    asked: list[Asked]


class Maker:
    """Turns documents into a shelf.

    Args:
        prompt: the model's templates.
        backend: its tokenizer; special tokens written in documents must be plain text.
        end: the token that ends an answer.
        refusal: the answer if there is none.
    """

    def __init__(self, prompt: PromptEncoder, backend: Tokenizer, end: int, refusal: str):
        self._prompt, self._backend, self._end = prompt, backend, end
        self.refusal = refusal

    def shelf(self, documents: Iterable[AskedDocument]) -> Shelf:
        """All documents as tokens, those of a kind together in the order they came in."""
        held = sorted((one for one in documents if one.text.strip()), key=lambda one: one.kind)
        parts = _side_by_side(self, held)
        lengths = np.concatenate([[0], *(part.lengths for part in parts)]).astype(np.int64)
        kinds = [document.kind for document in held]
        nothing = np.zeros(0, np.int32)
        return Shelf(
            kinds,
            np.concatenate([nothing, *(part.ids for part in parts)]),
            np.cumsum(lengths),
            np.concatenate([nothing.astype(bool), *(part.borders for part in parts)]),
            [one for part in parts for one in part.asked],
            np.array(_groups(kinds)),
            self._prompt.prefix().numpy(),
            self.answer(self.refusal),
            np.concatenate([self._ids("\n"), self._prompt.prefix().numpy()[:-1]]),
        )

    def part(self, first: int, held: list[AskedDocument]) -> _Part:
        """Some documents as tokens, of which the first has the number `first`."""
        nothing = np.zeros(0, np.int32)
        ids, borders, lengths = [nothing], [nothing.astype(bool)], []
        asked: list[Asked] = []
        encoded = self._backend.encode_batch([d.text for d in held], add_special_tokens=False)
        for number, (document, encoding) in enumerate(zip(held, encoded, strict=True), first):
            offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            ids.append(np.array(encoding.ids, np.int32))
            lengths.append(len(ids[-1]))
            borders.append(_borders(document.text, offsets[:, 0]))
            asked += self._asked(number, document.questions, offsets)
        return _Part(np.concatenate(ids), np.concatenate(borders), lengths, asked)

    def _asked(
        self, number: int, questions: Sequence[Question], offsets: np.ndarray
    ) -> list[Asked]:
        if not len(offsets):
            return []
        made = []
        for one in questions:
            if not one.text.strip():
                continue
            ids, words = self.question(one.text)
            spans = tuple(
                (
                    int(np.searchsorted(offsets[:, 1], a, "right")),
                    int(np.searchsorted(offsets[:, 0], b)),
                )
                for a, b in one.evidence
            )
            known = one.answer is not None and bool(spans) and all(a < b for a, b in spans)
            if one.answer is not None and not known:
                continue
            answer = self.answer(one.answer if one.answer is not None else self.refusal)
            made.append(Asked(number, ids, words, answer, spans if known else (), known))
        return made

    def question(self, words: str) -> tuple[np.ndarray, tuple[int, int]]:
        """A question in its template, and which of its tokens are the user's words."""
        ids, scored = self._prompt.question(words)
        own = np.flatnonzero(scored.numpy())
        return ids.numpy().astype(np.int32), (int(own[0]), int(own[-1]) + 1)

    def answer(self, text: str) -> np.ndarray:
        """The tokens of an answer, its end included."""
        return np.append(self._ids(text.strip()), self._end).astype(np.int32)

    def _ids(self, text: str) -> np.ndarray:
        return np.array(self._backend.encode(text, add_special_tokens=False).ids, np.int32)


def _side_by_side(maker: Maker, held: list[AskedDocument]) -> list[_Part]:
    """The parts of all documents, made by a process for each core."""
    if len(held) <= BATCH:
        return [maker.part(0, held)]
    firsts = range(0, len(held), BATCH)
    fork = multiprocessing.get_context("fork")  # what is bound here is theirs without a copy
    with fork.Pool(initializer=_start, initargs=(maker, held)) as pool:
        return pool.map(_made_from, firsts, chunksize=1)


def _start(maker: Maker, held: list[AskedDocument]) -> None:
    global _shared
    _shared = maker, held
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _made_from(first: int) -> _Part:
    maker, held = _shared
    return maker.part(first, held[first : first + BATCH])


_shared: tuple[Maker, list[AskedDocument]]


def of_files(paths: Iterable[Path], maker: Maker, read: Any) -> Shelf:
    """The shelf of several files' documents, in their order."""
    return maker.shelf(document for path in paths for document in read(path))


def _borders(text: str, starts: np.ndarray) -> np.ndarray:
    """Which tokens begin a line or a sentence; a token may begin with the space before it."""
    marks = np.zeros(len(starts), bool)
    ends = [match.end() for match in BORDER.finditer(text)]
    if len(starts):
        begun = [end if text[end - 1] == "\n" else end - 1 for end in ends]
        places = np.searchsorted(starts, np.array(begun, np.int64))
        marks[places[places < len(starts)]] = True
        marks[0] = True
    return marks


def _groups(kinds: list[str]) -> list[int]:
    firsts = [0] if kinds else []
    for number in range(1, len(kinds)):
        if kinds[number] != kinds[number - 1] or number - firsts[-1] == GROUP:
            firsts.append(number)
    return [*firsts, len(kinds)]
