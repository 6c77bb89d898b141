"""Results of a needle test: every trial, and rates by length, depth and kind."""

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.measure.intervals import wilson
from longctx.core.measure.journal import Record

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Trial:
    """One question to one haystack.

    Attributes:
        kind: the needle's.
        length: tokens of the haystack.
        trial: the haystack's number among those of its length.
        depth: share of the prose before the needle and its neighbours.
        token: the needle's first token.
        question, expected, answer: what was asked, the right value, and what the model said.
        answered: the answer is right.
        gathered: each line of the needle is within one passage.
        tokens, timings: of the answer, as in `ask --json`.
    """

    kind: str
    length: int
    trial: int
    depth: float
    token: int
    question: str
    expected: str
    answer: str
    answered: bool
    gathered: bool
    tokens: dict[str, int]
    timings: dict[str, float]


@dataclass(frozen=True)
class HaystackRead:
    """One haystack that was read and asked.

    Attributes:
        name: unique in a run.
        tokens: its size.
        reading_s, asking_s: seconds to read it, without loading the model; to ask all questions.
        trials: one for each of its needles.
    """

    name: str
    tokens: int
    reading_s: float
    asking_s: float
    trials: tuple[Trial, ...]

    @classmethod
    def of(cls, record: dict[str, Any]) -> "HaystackRead":
        """From the result of `asdict`."""
        trials = tuple(Trial(**trial) for trial in record["trials"])
        return cls(**{**record, "trials": trials})


NOTE = (
    "the needles are plainly worded, and most are asked for in the words in which they stand: "
    "questions that people ask of a text are harder (`longctx eval qa`)"
)


@dataclass(frozen=True)
class NeedleReport:
    """What a run found.

    Attributes:
        settings: options and model, with `lengths`, `depths` and `bar`.
        reads: every haystack, in order.
    """

    settings: Record
    reads: tuple[HaystackRead, ...]

    @property
    def asked(self) -> list[Trial]:
        """Every question, in order."""
        return [trial for read in self.reads for trial in read.trials]

    @property
    def rate(self) -> float:
        """Share of questions that were answered right."""
        return _share(self.asked)

    @property
    def passed(self) -> bool:
        """Whether that share reaches the bar."""
        return self.rate >= self.settings["bar"]

    @property
    def tokens_per_s(self) -> float:
        """Reading speed over all haystacks together."""
        seconds = sum(read.reading_s for read in self.reads)
        return round(sum(read.tokens for read in self.reads) / max(seconds, 1e-9), 1)

    def by_kind(self) -> dict[str, list[Trial]]:
        """The questions of each kind."""
        return _grouped(self.asked, lambda trial: trial.kind)

    def cells(self) -> dict[tuple[int, float], list[Trial]]:
        """The questions of each (length, depth)."""
        return _grouped(self.asked, lambda trial: (trial.length, trial.depth))

    def shares(self) -> list[list[float]]:
        """The share that was answered, for each depth at every length."""
        found = {cell: _share(trials) for cell, trials in self.cells().items()}
        lengths, depths = self.settings["lengths"], self.settings["depths"]
        return [[found[length, depth] for length in lengths] for depth in depths]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `niah`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "note": NOTE,
            **counts(self.asked),
            "settings": self.settings,
            "tokens_per_s": self.tokens_per_s,
            "kinds": [{"kind": kind, **counts(t)} for kind, t in self.by_kind().items()],
            "cells": [
                {"length": length, "depth": depth, **counts(trials)}
                for (length, depth), trials in self.cells().items()
            ],
            "haystacks": [
                {key: value for key, value in vars(read).items() if key != "trials"}
                | {"needles": len(read.trials)}
                for read in self.reads
            ],
            "trials": [asdict(trial) for trial in self.asked],
        }


def counts(trials: list[Trial]) -> dict[str, Any]:
    """How many were asked, answered and gathered; the share answered, and its 95% interval."""
    answered = sum(trial.answered for trial in trials)
    return {
        "asked": len(trials),
        "answered": answered,
        "gathered": sum(trial.gathered for trial in trials),
        "rate": round(_share(trials), 4),
        "interval": [round(end, 4) for end in wilson(answered, len(trials))],
    }


def _share(trials: list[Trial]) -> float:
    return sum(trial.answered for trial in trials) / len(trials)


def _grouped(trials: list[Trial], key: Callable[[Trial], Hashable]) -> dict[Any, list[Trial]]:
    found: dict[Any, list[Trial]] = {}
    for trial in trials:
        found.setdefault(key(trial), []).append(trial)
    return found
