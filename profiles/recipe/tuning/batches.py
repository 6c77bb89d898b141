"""Batches of three tasks: reading (a text and a question give the answer), asking (a text gives an
answer and its question), and searching (a question finds the window with its evidence).

Documents are drawn by their kinds. A worker process makes them.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.profiles.recipe.tuning.packed import Packed, pack
from longctx.profiles.recipe.tuning.passages import Passages, Text
from longctx.profiles.recipe.tuning.shelf import Asked, Shelf

# Shares of the kinds of documents; those that are not there leave theirs to the others.
MIX = {
    **{"written-book": 0.19, "written-essay": 0.07, "written-code": 0.11, "written-log": 0.04},
    **{"article": 0.08, "paper": 0.06, "fairytale": 0.05, "book": 0.02, "wiki": 0.18},
    **{"wiki-sentences": 0.02, "sentence": 0.03, "study": 0.01, "babi": 0.005},
    **{"code": 0.03, "package": 0.005, "log": 0.05, "table": 0.03, "mail": 0.03, "facts": 0.2},
}
HUMAN = ("fairytale", "wiki", "study", "wiki-sentences")  # whose questions people asked
READ_ONLY = ("sentence", "article")  # whose questions are clear beside their text alone
STRETCHES = {280: 0.4, 600: 0.25, 1100: 0.25, 3900: 0.1}  # most tokens of a whole stretch
LONGER = {600: 0.2, 1100: 0.4, 3900: 0.4}  # of facts, which have their rivals beside them
GATHERED = {  # share of texts that are passages
    **{"facts": 0.3, "babi": 0.0, "sentence": 0.0, "wiki-sentences": 0.5, "article": 0.5},
}
LONGEST = 4096  # tokens of a sequence
TURNS, TURNED = 8, 200  # further questions to one stretch, at most; its tokens, at least


@dataclass(frozen=True)
class Reading:
    """Sequences with the tokens that are learnt.

    Attributes:
        packed: the sequences.
        places: (n,) tokens before those that are learnt.
        targets: (n,) those tokens.
        kinds: of each sequence's document.
        owners: (n,) the sequence of each.
    """

    packed: Packed
    places: Tensor
    targets: Tensor
    kinds: list[str]
    owners: Tensor


Sequence = tuple[str, list[np.ndarray], list[tuple[int, np.ndarray]]]


class Drawn:
    """Draws questions by the kinds of their documents."""

    def __init__(self, shelf: Shelf, rng: random.Random, kinds: dict[str, float] = MIX):
        self.rng, self._by_kind = rng, defaultdict(list)
        for number, asked in enumerate(shelf.asked):
            if shelf.kinds[asked.document] in kinds:
                self._by_kind[shelf.kinds[asked.document]].append(number)
        self._kinds = {kind: kinds[kind] for kind in self._by_kind}

    def __call__(self) -> int:
        """The number of a question."""
        kind = self.rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        return self.rng.choice(self._by_kind[kind])


class Readings:
    """Makes batches of reading and of asking.

    Args:
        passages: what is put before the model.
        rng: decides everything.
        absent: share of the questions whose evidence is left out.
        ask: tokens that ask for a question, up to the start of the answer.
        line: tokens between the answer and the question that is asked for.
        asking: share of the sequences that learn to ask.
    """

    def __init__(
        self,
        passages: Passages,
        rng: random.Random,
        absent: float,
        ask: np.ndarray,
        line: np.ndarray,
        asking: float,
    ):
        self.shelf, self.passages, self.rng = passages.shelf, passages, rng
        self._absent = absent
        self._ask, self._line, self._asking = ask, line, asking
        self._drawn = Drawn(self.shelf, rng)
        self._human = Drawn(self.shelf, rng, {kind: MIX[kind] for kind in HUMAN})
        self._of: dict[int, list[int]] = defaultdict(list)
        for number, asked in enumerate(self.shelf.asked):
            self._of[asked.document].append(number)

    def batch(self, size: int, most: int) -> Reading:
        """A batch of `size` tokens with at most `most` sequences."""
        sequences, used, missed = [], 0, 0
        while missed < 8 and len(sequences) < most - size // LONGEST - 2:
            asks = self.rng.random() < self._asking
            made = self.asking(self._human()) if asks else self.reading(self._drawn())
            length = sum(map(len, made[1]))
            if length > min(LONGEST, size - used):
                missed += 1
                continue
            sequences.append(made)
            used += length
        return joined(sequences, size, most)

    def reading(self, number: int) -> Sequence:
        """A text, a question and its answer; sometimes further questions to the same text."""
        rng, asked = self.rng, self.shelf.asked[number]
        kind = self.shelf.kinds[asked.document]
        absent = not asked.known or rng.random() < self._absent
        if rng.random() < GATHERED.get(kind, 0.75):
            text = self.passages.gathered(number, rng, absent)
        else:
            sizes = LONGER if kind == "facts" else STRETCHES
            longest = rng.choices(list(sizes), list(sizes.values()))[0]
            text = self.passages.stretch(number, rng, absent, longest)
        parts, learnt = [self.shelf.prefix, text.ids], []
        for turn, (question, answer) in enumerate(self._turns(asked, text)):
            parts += [self.shelf.again, question] if turn else [question]
            learnt.append((sum(map(len, parts)), answer))
            parts.append(answer)
        return kind, parts, learnt

    def _turns(self, asked: Asked, text: Text) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The question with its answer, then others that a long stretch answers."""
        yield asked.question, asked.answer if text.answers else self.shelf.refusal
        if text.span is None or text.span[1] - text.span[0] < TURNED:
            return
        low, high = text.span
        for number in self.rng.sample(self._of[asked.document], len(self._of[asked.document]))[
            :TURNS
        ]:
            other = self.shelf.asked[number]
            inside = all(low <= a and b <= high for a, b in other.evidence)
            if other is not asked and other.known and inside:
                yield other.question, other.answer

    def asking(self, number: int) -> Sequence:
        """A stretch of text, an answer in it and the question that asks for it."""
        asked = self.shelf.asked[number]
        text = self.passages.stretch(number, self.rng, not asked.known, 360)
        words = asked.question[slice(*asked.words)]
        target = np.concatenate([asked.answer[:-1], self._line, words, asked.answer[-1:]])
        parts = [self.shelf.prefix, text.ids, self._ask]
        return "asking", [*parts, target], [(sum(map(len, parts)), target)]


def joined(sequences: list[Sequence], size: int, most: int) -> Reading:
    """Packs sequences, and says which of their tokens are learnt."""
    packed = pack([np.concatenate(parts) for _, parts, _ in sequences], size, most, LONGEST)
    places, targets, owners = [], [], []
    starts = packed.bounds[: len(sequences)].tolist()
    for owner, (start, (_, _, learnt)) in enumerate(zip(starts, sequences, strict=True)):
        for at, answer in learnt:
            places.append(np.arange(start + at - 1, start + at - 1 + len(answer)))
            targets.append(answer)
            owners.append(np.full(len(answer), owner))
    flat = (
        torch.from_numpy(np.concatenate(part).astype(np.int64))
        for part in (places, targets, owners)
    )
    first, second, third = flat
    return Reading(packed, first, second, [kind for kind, _, _ in sequences], third)
