"""Scores by task and length, and over all tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from longctx.core.measure.intervals import wilson


@dataclass(frozen=True)
class Cell:
    """The samples of a task at a length, or those of all tasks.

    Attributes:
        task: its name; None: all tasks.
        length: most tokens of a document.
        samples: number of samples asked.
        score: their mean; for all tasks, the mean of the tasks' scores.
        low, high: Wilson's 95% interval, too wide for scores between 0 and 1.
        gathered: mean share of the needed places that were gathered; None: unknown.
        tokens: mean size of the documents.
    """

    task: str | None
    length: int
    samples: int
    score: float
    low: float
    high: float
    gathered: float | None
    tokens: float


def cells(records: Iterable[dict[str, Any]]) -> list[Cell]:
    """A cell for each task and length, in the order of the records."""
    grouped: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        grouped.setdefault((record["task"], record["length"]), []).append(record)
    return [_cell(task, length, found) for (task, length), found in grouped.items()]


def averages(found: Sequence[Cell]) -> list[Cell]:
    """A cell for each length, the mean over its tasks."""
    lengths = dict.fromkeys(cell.length for cell in found)
    return [_average(length, [c for c in found if c.length == length]) for length in lengths]


def _cell(task: str, length: int, records: list[dict[str, Any]]) -> Cell:
    scores = [record["score"] for record in records]
    low, high = wilson(sum(scores), len(scores))
    known = [record["gathered"] for record in records if record["gathered"] is not None]
    return Cell(
        task=task,
        length=length,
        samples=len(records),
        score=fmean(scores),
        low=low,
        high=high,
        gathered=fmean(known) if known else None,
        tokens=fmean(record["tokens"]["document"] for record in records),
    )


def _average(length: int, found: list[Cell]) -> Cell:
    score, samples = fmean(cell.score for cell in found), sum(cell.samples for cell in found)
    low, high = wilson(score * samples, samples)
    known = [cell.gathered for cell in found if cell.gathered is not None]
    return Cell(
        task=None,
        length=length,
        samples=samples,
        score=score,
        low=low,
        high=high,
        gathered=fmean(known) if known else None,
        tokens=fmean(cell.tokens for cell in found),
    )
