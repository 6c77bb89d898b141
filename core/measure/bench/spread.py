"""Several runs of one measurement: the run in the middle, and how far the others are from it.

Knows nothing of what is measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Any)  # a frozen dataclass with `spread`, and `failed` if it may fail
Spread = dict[str, tuple[float, float]]  # figure -> its least and its most; empty: of one run


def of_runs(measure: Callable[[], Row], runs: int, by: str, also: Sequence[str] = ()) -> Row:
    """Measures several times; one that fails is not measured again.

    Args:
        measure: makes a row of figures.
        runs: how often, at least once.
        by: the figure by which runs are ordered.
        also: others whose spread is told.

    Returns:
        The run in the middle, the earlier half's last of an even number, with the least and the
        most of these figures over all runs.
    """
    rows: list[Row] = []
    while len(rows) < runs and not (rows and _failed(rows[-1])):
        rows.append(measure())
    done = [row for row in rows if not _failed(row)]
    if len(done) < 2:
        return (done or rows)[0]
    ordered = sorted(done, key=lambda row: getattr(row, by))
    spread: Spread = {}
    for name in (by, *also):
        figures = [getattr(row, name) for row in done]
        spread[name] = min(figures), max(figures)
    return replace(ordered[(len(ordered) - 1) // 2], spread=spread)


def _failed(row: Any) -> bool:
    return bool(getattr(row, "failed", ""))
