"""The table of ranks, and the heads that a profile takes from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from longctx.core.measure.calibrate.ranks import MAXSIM, MEASURES, MNR
from longctx.core.measure.calibrate.tasks import MULTI_HOP, PATTERN, TASKS

Head = tuple[int, str, int]  # layer, "q" | "k" | "v", head; 0-based
Measured = Mapping[str, Mapping[str, Sequence[float]]]  # one layer: by measure, kind and head
Ranks = Sequence[Measured]  # one sample: by layer

TAKEN = ("q", "k", "v")  # kinds that a profile can name
EQUAL = 6  # digits to which heads are compared; stored ranks are rounded
EACH = 2  # heads per task
SHALLOW = 0.7  # share of the layers from which the pattern heads are taken


@dataclass(frozen=True)
class HeadRow:
    """The result of one head in one task, by one measure.

    Attributes:
        measure, task, layer, kind, head: what the row is about.
        mean: mean of the samples' normalised ranks; lower is better.
        error: its standard error; None for a single sample.
    """

    measure: str
    task: str
    layer: int
    kind: str
    head: int
    mean: float
    error: float | None

    @property
    def named(self) -> Head:
        """The head alone."""
        return self.layer, self.kind, self.head


def table(samples: Mapping[str, Sequence[Ranks]]) -> list[HeadRow]:
    """Means over samples, by measure and task, best first; ties in layer order.

    Args:
        samples: the ranks of each sample, by task.
    """
    rows = [
        row
        for measure in MEASURES
        for task in TASKS
        for row in _rows(measure, task, samples.get(task, ()))
    ]
    order = MEASURES.index, TASKS.index
    return sorted(rows, key=lambda row: (order[0](row.measure), order[1](row.task), row.mean))


def _rows(measure: str, task: str, samples: Sequence[Ranks]) -> Iterable[HeadRow]:
    if not samples:
        return
    for layer, measured in enumerate(samples[0]):
        for kind, heads in measured[measure].items():
            for head in range(len(heads)):
                values = [sample[layer][measure][kind][head] for sample in samples]
                mean, error = fmean(values), standard_error(values)
                yield HeadRow(measure, task, layer, kind, head, mean, error)


def standard_error(values: Sequence[float]) -> float | None:
    """The standard error of a mean; None for a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def choose(rows: Sequence[HeadRow], layers: int, measure: str) -> tuple[Head, ...]:
    """Four different heads.

    By `mnr`, as in REFORM (appendix C.6): the two best heads of each task; those of the pattern
    task are chosen first, from the first 70% of the layers. By `maxsim`: the four best by the mean
    of both tasks.

    Args:
        rows: rows of `table`.
        layers: number of the model's layers.
        measure: one of MEASURES.

    Returns:
        The heads in layer order; fewer than four if the model has fewer.
    """
    able = [row for row in rows if row.measure == measure and row.kind in TAKEN]
    return tuple(sorted(CHOOSERS[measure](able, layers)))


def _best_of_all(rows: Sequence[HeadRow], layers: int) -> list[Head]:
    # Nearly every head ranks the pattern's sentence first, so one task alone would not decide.
    means: dict[Head, list[float]] = {}
    for row in rows:
        means.setdefault(row.named, []).append(row.mean)
    best = sorted(means, key=lambda head: (round(fmean(means[head]), EQUAL), head))
    return best[: EACH * len(TASKS)]


def _best_of_each(rows: Sequence[HeadRow], layers: int) -> list[Head]:
    chosen: list[Head] = []
    for task, below in ((PATTERN, SHALLOW * layers), (MULTI_HOP, layers)):
        heads = [row.named for row in rows if row.task == task and row.layer < below]
        chosen += [head for head in heads if head not in chosen][:EACH]
    return chosen


CHOOSERS = {MAXSIM: _best_of_all, MNR: _best_of_each}
