"""Questions with passages, for a reader that points: one passage with the answer, some without.

A document's passages are cut anew each time, at the ends of sentences and lines, in sizes and at
places of chance. The wrong ones are those of the same document that share most words with the
question, and one at random.
"""

import bisect
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from longctx.core.passages.context import context
from longctx.profiles.recipe.data.asked import AskedDocument, Question, Span

WORD = re.compile(r"\w+")
END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]]*\s+|\n")
STEM = 6  # letters by which words are compared
SIZES = (300, 950)  # characters of a passage
SNAP = 220  # characters within which a passage is moved to the end of a sentence or line
FARTHEST = 1500  # characters that the evidence of one answer may take
WITH_CONTEXT = 0.6  # of the passages are given with what stands above them
WRONG = (2, 3, 3, 4, 6)  # passages without the answer, as often each
NOISE = 0.6  # at most, added to how much words they share, so that each time has others
STEP = 450  # characters between the beginnings of those to choose from


class Passage(NamedTuple):
    """A stretch of a document.

    Attributes:
        context: what stands above it; empty for none.
        text: itself.
        answer: characters [start, end) of the text; None: it does not answer.
    """

    context: str
    text: str
    answer: Span | None


class Example(NamedTuple):
    """A question with passages, of which at most the first answers."""

    kind: str
    question: str
    passages: list[Passage]


class Examples:
    """Draws examples from one document.

    Args:
        document: with questions.
        rng: what is drawn with.
    """

    def __init__(self, document: AskedDocument, rng: random.Random):
        self.document, self.rng, self.text = document, rng, document.text
        self.ends = [match.end() for match in END.finditer(self.text)]
        first = rng.randrange(STEP // 2)
        starts = range(0, max(1, len(self.text) - 150), STEP)
        self.stretches = [(max(0, at - first), min(len(self.text), at + 600)) for at in starts]
        self.lower = self.text.lower()
        self.bags = [set(stems(self.text[start:end])) for start, end in self.stretches]
        self.counts = Counter(stem for bag in self.bags for stem in bag)

    def __iter__(self) -> Iterator[Example]:
        for question in self.document.questions:
            example = self.of(question)
            if example:
                yield example

    def of(self, question: Question) -> Example | None:
        """An example of a question, if its answer stands in its evidence."""
        right = None
        if question.answer:
            right = self._right(question, question.answer)
            if right is None:
                return None
        wrong = [self._passage(*place) for place in self._wrong(question)]
        passages = [right, *wrong] if right else wrong[:-1]
        return Example(self.document.kind, question.text, passages) if passages else None

    def _right(self, question: Question, answer: str) -> Passage | None:
        for start, end in question.evidence:
            found = self._found(answer, start, end)
            if found is None:
                continue
            low = min(start for start, _ in question.evidence)
            high = max(end for _, end in question.evidence)
            if high - low > FARTHEST:
                low, high = start, end
            if high - low > FARTHEST:
                low, high = max(low, found[0] - 300), min(high, found[1] + 300)
            place = self._around(low, high)
            passage = self._passage(*place)
            return passage._replace(answer=(found[0] - place[0], found[1] - place[0]))
        return None

    def _found(self, answer: str, start: int, end: int) -> Span | None:
        """Where an answer stands in the evidence, whatever the white space in it."""
        at = self.text.find(answer, start, end)
        if at >= 0:
            return at, at + len(answer)
        pattern = re.escape(answer).replace(r"\ ", r"\s+")
        match = re.compile(pattern).search(self.text, start, end)
        return match.span() if match else None

    def _around(self, start: int, end: int) -> Span:
        """A stretch of a size by chance that holds [start, end) and ends at sentences or lines."""
        least = end - start + 40
        size = self.rng.randint(max(SIZES[0], least), max(SIZES[1], least + 40))
        low = max(0, start - self.rng.randint(0, size - (end - start)))
        high = min(len(self.text), low + size)
        before = bisect.bisect_right(self.ends, low) - 1
        after = bisect.bisect_left(self.ends, high)
        if before >= 0 and low - self.ends[before] < SNAP:
            low = self.ends[before]
        if after < len(self.ends) and self.ends[after] - high < SNAP:
            high = self.ends[after]
        return min(low, start), max(high, end)

    def _wrong(self, question: Question) -> list[Span]:
        """Stretches without the answer: those most alike by words, and one by chance."""
        asked = set(stems(question.text))
        answer = (question.answer or "").lower()
        scored = []
        for number, (start, end) in enumerate(self.stretches):
            if any(start < high and low < end for low, high in question.evidence):
                continue
            if len(answer) > 2 and answer in self.lower[start:end]:
                continue
            shared = sum(self._weight(stem) for stem in asked & self.bags[number])
            scored.append((shared + self.rng.random() * NOISE, number))
        scored.sort(reverse=True)
        count = self.rng.choice(WRONG)
        numbers = [number for _, number in scored[:count]]
        if len(scored) > count and self.rng.random() < 0.5:
            numbers[-1] = self.rng.choice(scored[count:])[1]
        return [self._moved(self.stretches[number], question, answer) for number in numbers]

    def _moved(self, place: Span, question: Question, answer: str) -> Span:
        """A stretch about the same place, of a size by chance, if the answer is not in it."""
        start, end = place
        moved = self._around(start + 100, max(start + 101, end - 100))
        touches = any(moved[0] < high and low < moved[1] for low, high in question.evidence)
        has = len(answer) > 2 and answer in self.lower[moved[0] : moved[1]]
        return place if touches or has else moved

    def _weight(self, stem: str) -> float:
        return math.log(1 + len(self.stretches) / (1 + self.counts[stem]))

    def _passage(self, start: int, end: int) -> Passage:
        text = self.text[start:end]
        given = self.rng.random() < WITH_CONTEXT
        above = context(self.text[max(0, start - 8000) : start], text) if given else ""
        return Passage(above, text, None)


def stems(text: str) -> list[str]:
    """The beginnings of its words."""
    return [word.lower()[:STEM] for word in WORD.findall(text)]


def drawn(
    documents: Sequence[AskedDocument], shares: dict[str, float], rng: random.Random
) -> Iterator[Example]:
    """Examples without end: each round takes the documents in another order.

    Args:
        documents: with questions.
        shares: by kind, how often a question comes in a round, which may be more or less than
            once; of other kinds once.
        rng: what is drawn with.
    """
    waiting: list[Example] = []
    while True:
        for number in rng.sample(range(len(documents)), len(documents)):
            document = documents[number]
            share = shares.get(document.kind, 1.0)
            chosen = tuple(
                one
                for one in document.questions
                for _ in range(int(share) + (rng.random() < share % 1))
            )
            kept = AskedDocument(document.kind, document.text, chosen)
            waiting += Examples(kept, rng) if chosen else ()
            while len(waiting) > MIXED:
                at = rng.randrange(len(waiting))
                waiting[at], waiting[-1] = waiting[-1], waiting[at]
                yield waiting.pop()


MIXED = 1500  # examples among which the next one is drawn
