"""What RULER's families share: materials, tasks made of samples, places of lines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from random import Random
from typing import Any

import yaml

from longctx.core.measure.case import Case, CaseQuestion, Span, Task
from longctx.core.measure.eval.filling import Count, counter
from longctx.core.measure.prose import Prose

# RULER's filling without content.
NOISE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
)
Sample = Callable[[Random, int, Count], tuple[str, CaseQuestion]]


@dataclass(frozen=True)
class Words:
    """English words, each once."""

    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]

    @cached_property
    def every(self) -> tuple[str, ...]:
        """All of them, sorted."""
        return tuple(sorted({*self.adjectives, *self.nouns, *self.verbs}))

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """Those that are not part of another word, so that no answer has them by accident."""
        text = "\n".join(self.every)
        return tuple(word for word in self.every if text.count(word) == 1)


@dataclass(frozen=True)
class Materials:
    """What documents are made of."""

    prose: Prose
    words: Words


def sample_words() -> Words:
    """The words that come with the package."""
    text = (resources.files("longctx.samples") / "words.yaml").read_text("utf-8")
    return Words(**{kind: tuple(words.split()) for kind, words in yaml.safe_load(text).items()})


def task(
    name: str,
    sample: Sample,
    score: Callable[[tuple[str, ...], str], float],
    max_new_tokens: int,
) -> Task:
    """A task whose samples are drawn independently.

    Args:
        name: RULER's name.
        sample: makes a text and a question about it from random numbers, the tokens of a document,
            and a function that counts them.
        score: scores an answer.
        max_new_tokens: limit for an answer.
    """

    def make(tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
        tokens = counter(tokenizer)
        for number in range(count):
            case = f"{name}/{length}/{number}"
            text, query = sample(Random(f"{seed}/{case}"), length, tokens)
            yield Case(case, text, (query,))

    return Task(name, make, score, max_new_tokens)


def ascending(draw: Random, count: int) -> list[float]:
    """Random places in a document, ascending."""
    return sorted(draw.random() for _ in range(count))


def is_said(word: str, question: str) -> bool:
    """Whether a question contains a word, so that repeating the question would score."""
    return word.lower() in question.lower()


def spans(text: str, pieces: Sequence[str]) -> tuple[Span, ...]:
    """The bytes at which pieces first occur in a text."""
    starts = [len(text[: text.index(piece)].encode()) for piece in pieces]
    sizes = [len(piece.encode()) for piece in pieces]
    return tuple(Span(start, start + size) for start, size in zip(starts, sizes, strict=True))
