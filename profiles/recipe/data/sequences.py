"""Training sequences: one or more documents with questions and answers, and the weight of every
token.

Decides which kinds of documents follow each other and how long they are, by the progress of the
training. Tokens are numpy arrays; torch is not needed here.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from longctx.profiles.recipe.data.documents.document import Document
from longctx.profiles.recipe.data.documents.needles import NeedleDocuments
from longctx.profiles.recipe.data.documents.prose import ProseDocuments, RecordDocuments
from longctx.profiles.recipe.data.documents.questions import Questions
from longctx.profiles.recipe.data.haystacks import Corpus, Haystacks, Ids
from longctx.profiles.recipe.data.needles.tasks import Tasks
from longctx.profiles.recipe.settings import Settings

MIX = {
    "needles": 0.46,
    "dense": 0.17,
    "mined": 0.12,
    "paragraph": 0.13,
    "paragraphs": 0.08,
    "text": 0.04,
}
EARLY = {"dense": 0.34, "needles": 0.36, "mined": 0.1, "paragraphs": 0.08, "text": 0.12}
BEGUN = 0.08  # share of the training that has the early mix
SHORTEST = 128  # least tokens of a document


class Sequences:
    """Makes training sequences for one worker."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, seed: int, settings: Settings):
        self.rng = rng = random.Random(seed)
        short = [r for r in corpus.records if len(r["context"]) < 420 and r["source"] != "babi"]
        tasks = Tasks(corpus.pools, short, rng, settings)
        hay = Haystacks(corpus, tokenizer, rng, settings)
        questions = Questions(hay)
        prose = ProseDocuments(hay, questions)
        needles = NeedleDocuments(hay, tasks, questions, prose)
        records = RecordDocuments(hay, tasks.records, questions)
        self.makers: dict[str, Callable[[int], Document]] = {
            "needles": needles.needles,
            "dense": needles.dense,
            "mined": prose.mined,
            "paragraph": records.paragraph,
            "paragraphs": records.paragraphs,
            "text": prose.text,
        }

    def sequence(
        self, length: int, progress: float
    ) -> tuple[Ids, Ids, Ids, list[Any], list[Any], list[Any]]:
        """Documents of `length` tokens in all.

        Args:
            length: tokens.
            progress: share of the training that is over; short dense documents come first.

        Returns:
            ids, weights, positions (`length` of each); asks, pairs and answers with offsets into
            the sequence; asks and pairs end with the start of their document.
        """
        ids, weights, asks, pairs, answers = [], [], [], [], []
        at = 0
        for document in self.documents(length, progress):
            ids.append(document.tokens())
            weights += document.weights
            for marks, more in zip((asks, pairs, answers), document.marks(at), strict=True):
                marks.extend(more)
            at += document.length
        positions = self.positions(length, progress)
        return np.concatenate(ids), np.concatenate(weights), positions, asks, pairs, answers

    def documents(self, length: int, progress: float) -> Iterator[Document]:
        """Documents of similar size, or a single one, of `length` tokens in all."""
        mix = EARLY if progress < BEGUN else MIX
        size, rest = self.size(length, progress), length
        while rest:
            count = min(rest, max(SHORTEST, int(size * self.rng.uniform(0.6, 1.3))))
            count = rest if rest - count < SHORTEST or size == length else count
            kind = self.rng.choices(list(mix), list(mix.values()))[0]
            yield self.makers[kind](count)
            rest -= count

    def size(self, length: int, progress: float) -> int:
        """About how many tokens each document of a sequence has; `length` if there is only one."""
        short = [256, 512, 1024] if progress < 0.3 else [512, 1024, 2048, 2048]
        whole = 0.0 if progress < BEGUN else 0.25 if progress < 0.3 else 0.6
        return length if self.rng.random() < whole else self.rng.choice(short)

    def positions(self, length: int, progress: float) -> Ids:
        """0, 1, 2 ...; with jumps in a third of the sequences, so that distances mean nothing."""
        positions = np.arange(length)
        if self.rng.random() < (0.35 if progress > BEGUN else 0.1):
            reach = int(2 ** self.rng.uniform(10, 16))
            for _ in range(self.rng.randint(1, 5)):
                positions[self.rng.randrange(1, length) :] += self.rng.randint(0, reach // 3)
        return positions
