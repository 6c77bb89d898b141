"""Documents of running text, alone or with mined questions; documents with question records.

Most of the records' names, numbers and words are replaced by others.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from longctx.profiles.recipe.data.documents.document import TEXT, Document
from longctx.profiles.recipe.data.documents.questions import Asked, Questions
from longctx.profiles.recipe.data.haystacks import Haystacks
from longctx.profiles.recipe.data.needles.of_records import RecordNeedles

NATURAL = {"qamr": 0.3, "fairytaleqa": 0.32, "qed": 0.18, "covid": 0.12, "babi": 0.08}
AROUND = 16  # tokens on either side of an answer that still count as its needle


class ProseDocuments:
    """Makes documents of exactly `length` tokens."""

    def __init__(self, hay: Haystacks, questions: Questions):
        self.hay, self.questions, self.rng = hay, questions, hay.rng

    def text(self, length: int) -> Document:
        """Text alone: mostly prose."""
        document = Document.opened(self.hay.bos)
        source = self.rng.choices(["prose", "code", "logs"], [8, 1.5, 0.5])[0]
        document.add(self.hay.slice(getattr(self.hay.corpus, source), length - 1), TEXT)
        return document

    def mined(self, length: int) -> Document:
        """Prose and questions about its own sentences, sometimes one that another page answers."""
        wanted = self.rng.choice([1, 2, 3, 4, 6]) if length > 500 else 1
        room = length - 1 - 70 * wanted
        if room < 150:
            return self.text(length)
        ids, found = self.hay.asked_prose(room, wanted)
        document = Document.opened(self.hay.bos)
        document.add(ids, TEXT)
        asked = [
            self.questions.asked(question, answer, "mined", (first + 1, last + 1))
            for first, last, question, answer in found
        ]
        if self.rng.random() < self.hay.settings.absent:
            asked.append(self.questions.absent(self.rng.choice(self.hay.corpus.asked)[2]))
            self.rng.shuffle(asked)
        return self.questions.finish(document, asked, length)


class RecordDocuments:
    """Makes documents of exactly `length` tokens; NATURAL sets the shares of record sources."""

    def __init__(self, hay: Haystacks, records: RecordNeedles, questions: Questions):
        self.hay, self.records, self.questions, self.rng = hay, records, questions, hay.rng
        self.sources: dict[str, list[dict[str, Any]]] = {}
        for record in hay.corpus.records:
            self.sources.setdefault(record["source"], []).append(record)
        self.shares = {name: share for name, share in NATURAL.items() if name in self.sources}

    def paragraph(self, length: int) -> Document:
        """A paragraph with questions, somewhere in a haystack."""
        document = Document.opened(self.hay.bos)
        ids, asked = self.encoded(self.record(), self.rng.choice([1, 2, 3, 5]))
        room = length - 1 - len(ids) - sum(map(self.questions.size, asked))
        if room < 0:
            return self.paragraphs(length)
        hay, kind = self.hay.make(room)
        cut = self.hay.cut(hay, kind)
        document.add(hay[:cut], TEXT)
        start, _ = document.add(ids, TEXT)
        document.add(hay[cut:], TEXT)
        self.questions.put(document, moved(asked, start))
        return self.questions.pad(document, length)

    def paragraphs(self, length: int) -> Document:
        """Several paragraphs together, then questions about all of them."""
        document, asked = Document.opened(self.hay.bos), []
        room = length - 1
        for _ in range(40):
            ids, found = self.encoded(self.record(), self.rng.choice([1, 2, 3]))
            need = len(ids) + sum(map(self.questions.size, found))
            if need > room:
                break
            start, _ = document.add(ids, TEXT)
            asked += moved(found, start)
            room -= need
        self.rng.shuffle(asked)
        return self.questions.finish(document, asked, length)

    def record(self) -> dict[str, Any]:
        """A question record."""
        source = self.rng.choices(list(self.shares), list(self.shares.values()))[0]
        return self.rng.choice(self.sources[source])

    def encoded(self, record: dict[str, Any], count: int) -> tuple[list[int], list[Asked]]:
        """A record's ids and questions with spans in them; sometimes one about another record."""
        text, pairs = self.records.renamed(record, count)
        encoded = self.hay.tokenizer.encode("\n" + text, add_special_tokens=False)
        starts = [start - 1 for start, _ in encoded.offsets]  # in `text`, without the line end
        kind = f"qa {record['source']}"
        asked = [
            self.questions.asked(question, answer, kind, span_of(answer, text, starts))
            for question, answer in pairs
        ]
        if self.rng.random() < self.hay.settings.absent and record["source"] != "babi":
            other = self.record()
            if other["source"] != "babi" and other is not record:
                asked.append(self.questions.absent(self.rng.choice(other["asked"])[0]))
                self.rng.shuffle(asked)
        return encoded.ids, asked


def span_of(answer: str, text: str, starts: list[int]) -> tuple[int, int] | None:
    """The tokens around an answer that occurs once in the text; `starts`: where tokens start."""
    found = text.find(answer)
    if found < 0 or text.find(answer, found + 1) >= 0:
        return None
    first = int(np.searchsorted(starts, found, "right")) - 1
    last = int(np.searchsorted(starts, found + len(answer), "left"))
    return max(0, first - AROUND), min(len(starts), last + AROUND)


def moved(asked: list[Asked], by: int) -> list[Asked]:
    """The questions with their needles shifted by `by` tokens."""
    return [
        replace(item, span=(item.span[0] + by, item.span[1] + by)) if item.span else item
        for item in asked
    ]
