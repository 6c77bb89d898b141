"""What `ask` puts before the model, made for training: right and wrong passages, in its order.

A text is some windows of a document's group (`shelf.py`), those with the evidence and those that a
search with the model itself found best; or one stretch of the document. Sentences without which a
question cannot be answered are left out of some texts.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from longctx.profiles.recipe.tuning.shelf import STEP, WIDTH, Asked, Shelf, window_count, windows_of

COUNTS = {1: 0.12, 2: 0.3, 3: 0.1, 4: 0.2, 6: 0.1, 8: 0.18}  # passages of a text
GROWTH = 48  # tokens by which a passage may grow on either side to a whole sentence or line
WHOLE = 0.6  # share of passages that end with whole sentences or lines
Window = tuple[int, int]  # document, window


@dataclass(frozen=True)
class Text:
    """A document's part of a prompt.

    Attributes:
        ids: its tokens.
        answers: it answers the question.
        span: tokens [start, end) of the document, if the text is one whole stretch of it.
    """

    ids: np.ndarray
    answers: bool
    span: tuple[int, int] | None = None


class Passages:
    """Makes texts for questions.

    Args:
        shelf: the documents.
        found: for some questions, the windows that a search finds best, best first.
    """

    def __init__(self, shelf: Shelf, found: dict[int, list[Window]]):
        self.shelf, self._found = shelf, found

    def gathered(self, number: int, rng: random.Random, absent: bool) -> Text:
        """Several passages, as a search gathers them.

        Args:
            number: of the question.
            rng: decides how many, and which wrong ones.
            absent: leave the evidence out.
        """
        asked = self.shelf.asked[number]
        count = rng.choices(list(COUNTS), list(COUNTS.values()))[0]
        right = [] if absent else [self._window(asked, span, rng) for span in asked.evidence]
        barred = windows_of(asked.evidence, self.shelf.length(asked.document))
        others = self._others(number, barred, count, rng)
        chosen = sorted({*right, *others[: max(0, count - len(right))]})
        if not chosen:
            chosen = [(asked.document, 0)]
        runs = [self._grown(run, asked if absent else None, rng) for run in _runs(chosen)]
        return Text(np.concatenate([self.shelf.stretch(*run) for run in runs]), bool(right))

    def stretch(self, number: int, rng: random.Random, absent: bool, longest: int) -> Text:
        """One stretch of the document, with the evidence or with its sentences taken out."""
        asked = self.shelf.asked[number]
        length, spans = self.shelf.length(asked.document), asked.evidence
        least = max((b for _, b in spans), default=0) - min((a for a, _ in spans), default=0)
        if least > longest:
            return self.gathered(number, rng, absent)
        size = min(length, max(least, int(longest * rng.uniform(0.25, 1.0))))
        low = max(0, max((b for _, b in spans), default=0) - size)
        high = min(length - size, min((a for a, _ in spans), default=length - size))
        start = rng.randint(min(low, high), max(low, high))
        ids = self.shelf.stretch(asked.document, start, start + size)
        if not absent or not spans:
            return Text(ids, bool(spans), (start, start + size))
        kept = np.ones(size, bool)
        for a, b in spans:
            kept[max(0, a - start) : max(0, b - start)] = False
        return Text(ids[kept], False)

    def _window(self, asked: Asked, span: tuple[int, int], rng: random.Random) -> Window:
        """A window with a whole span, or with its start if no window has it whole."""
        start, end = span
        low, high = max(0, -(-(end - WIDTH) // STEP)), start // STEP
        last = window_count(self.shelf.length(asked.document)) - 1
        return asked.document, min(last, rng.randint(low, high) if low <= high else high)

    def _others(
        self, number: int, barred: set[int], count: int, rng: random.Random
    ) -> list[Window]:
        """Windows without evidence: those found, else ones near by and of the same group."""
        asked = self.shelf.asked[number]
        found = [w for w in self._found.get(number, []) if not self._has(asked, w, barred)]
        if found:
            skipped = rng.choice([0, 0, 0, 1, 2])
            return found[skipped:]
        group = self.shelf.group_of(asked.document)
        low, high = self.shelf.groups[group], self.shelf.groups[group + 1]
        drawn = []
        for _ in range(3 * count):
            document = asked.document if rng.random() < 0.5 else rng.randrange(low, high)
            window = document, rng.randrange(window_count(self.shelf.length(document)))
            if not self._has(asked, window, barred):
                drawn.append(window)
        return drawn

    def _has(self, asked: Asked, window: Window, barred: set[int]) -> bool:
        return window[0] == asked.document and window[1] in barred

    def _grown(
        self, run: tuple[int, int, int], without: Asked | None, rng: random.Random
    ) -> tuple[int, int, int]:
        """A run whose ends are moved to whole sentences or lines, but not onto left-out ones."""
        document, start, end = run
        length = self.shelf.length(document)
        end = min(end, length)
        if rng.random() > WHOLE:
            return document, start, end
        low, high = max(0, start - GROWTH), min(length, end + GROWTH)
        if without is not None and without.document == document:
            low = max([low, *(b for _, b in without.evidence if b <= start)])
            high = min([high, *(a for a, _ in without.evidence if a >= end)])
        borders = self.shelf.borders[self.shelf.firsts[document] :][: length + 1]
        before = np.flatnonzero(borders[low : start + 1])
        after = np.flatnonzero(borders[end:high])
        start = low + int(before[-1]) if len(before) else start
        return document, start, end + int(after[0]) if len(after) else end


def _runs(windows: Iterable[Window]) -> list[tuple[int, int, int]]:
    """Windows in order as runs (document, first token, end); overlapping ones are joined."""
    runs: list[tuple[int, int, int]] = []
    for document, window in windows:
        start, end = window * STEP, window * STEP + WIDTH
        if runs and runs[-1][0] == document and runs[-1][2] >= start:
            runs[-1] = document, runs[-1][1], end
        else:
            runs.append((document, start, end))
    return runs
