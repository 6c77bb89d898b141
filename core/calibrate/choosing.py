"""The table of ranks, and which heads a profile takes from it (REFORM, appendix C.2 and C.6).

Values alone; knows nothing of how they were measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from longctx.core.calibrate.tasks import MULTI_HOP, PATTERN, TASKS

Head = tuple[int, str, int]  # layer, "q" | "k" | "v", head; 0-based
Ranks = Sequence[Mapping[str, Sequence[float]]]  # of a sample: by layer, by kind, by head

TAKEN = ("q", "k", "v")  # kinds that a profile can name
EACH = 2  # heads of each task
SHALLOW = 0.7  # share of the layers from which the pattern heads are taken


@dataclass(frozen=True)
class Row:
    """How one head did in one task.

    Attributes:
        task, layer, kind, head: which.
        mean: of the samples' mean normalised ranks; lower is better.
        error: its standard error; None for a single sample.
    """

    task: str
    layer: int
    kind: str
    head: int
    mean: float
    error: float | None


def table(samples: Mapping[str, Sequence[Ranks]]) -> list[Row]:
    """Means over samples, by task, then best first; equal ones in the order of layers.

    Args:
        samples: the ranks of each sample, by task.
    """
    rows = [row for task in TASKS for row in _rows(task, samples.get(task, ()))]
    return sorted(rows, key=lambda row: (TASKS.index(row.task), row.mean))


def _rows(task: str, samples: Sequence[Ranks]) -> Iterable[Row]:
    if not samples:
        return
    for layer, kinds in enumerate(samples[0]):
        for kind, heads in kinds.items():
            for head in range(len(heads)):
                values = [sample[layer][kind][head] for sample in samples]
                yield Row(task, layer, kind, head, fmean(values), standard_error(values))


def standard_error(values: Sequence[float]) -> float | None:
    """Of a mean; None for a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def choose(rows: Sequence[Row], layers: int) -> tuple[Head, ...]:
    """REFORM's four heads: the two best of each task, all different.

    The pattern heads come from the first 70% of the layers, and are taken first.

    Args:
        rows: as `table` gave them.
        layers: of the model.

    Returns:
        In the order of layers; fewer than four where there are not so many.
    """
    chosen: list[Head] = []
    for task, below in ((PATTERN, SHALLOW * layers), (MULTI_HOP, layers)):
        heads = [(row.layer, row.kind, row.head) for row in rows if _fits(row, task, below)]
        chosen += [head for head in heads if head not in chosen][:EACH]
    return tuple(sorted(chosen))


def _fits(row: Row, task: str, below: float) -> bool:
    return row.task == task and row.kind in TAKEN and row.layer < below
