"""Ranks and copy scores as heat maps, layers by heads."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from longctx.core.common.outputs import Output
from longctx.core.measure.calibrate.ranks import KINDS
from longctx.core.measure.calibrate.report import TITLES, Calibration
from longctx.core.measure.calibrate.tasks import TASKS
from longctx.core.report.svg import Drawing, between

CELL, WIDE = 10, 90  # pixels of a head or layer; the least width of a map
EDGE, GAP, HEAD = 16, 24, 22  # pixels around the picture, between maps, and of a map's title
WORST = 1.0  # rank at which the colours end; 0.5 is chance
COLOURS = ("#fde725", "#35b779", "#31688e", "#440154")  # of the best first

Cells = list[list[float]]


def draw(file: Path, found: Calibration) -> None:
    """Draws a row of heat maps per measure and task, one map per kind, and the copy scores.

    Args:
        file: .svg.
        found: the results.

    Raises:
        LongctxError: the file cannot be written.
    """
    drawing, x, y = Drawing(), EDGE, EDGE + 18
    title = f"{found.model}, {found.samples} samples a task"
    drawing.text(EDGE, EDGE + 8, title, look="title")
    drawing.text(EDGE, y + 12, "down: layers; across: heads; a pointer shows the number")
    y, right = y + 34, x + 360
    for measure in found.measures:
        best = min(row.mean for row in found.rows if row.measure == measure)
        shade = _logarithmic(best)
        drawing.text(EDGE, y + 12, f"{TITLES[measure]}, {best:.3g} (best) to {WORST:g}:")
        y = _legend(drawing, y + 18)
        for task in TASKS:
            x, low = EDGE, y
            for kind in KINDS:
                cells = _ranks(found, measure, task, kind)
                end, bottom = _map(drawing, (x, y), f"{task}: {kind}", cells, shade)
                x, low = max(end, x + WIDE) + GAP, max(low, bottom)
            right, y = max(right, x - GAP), low + GAP
    copying = grid([(each.layer, each.head, each.score) for each in found.copying])
    drawing.text(EDGE, y + 12, "copy score, 1 (best) to 0:")
    y = _legend(drawing, y + 18)
    end, y = _map(drawing, (EDGE, y), "copy score", copying, lambda score: 1 - score)
    Output(file).write(drawing.svg(max(right, end) + EDGE, y + EDGE, title))


def _logarithmic(best: float) -> Callable[[float], float]:
    """From a rank to its share of the way from the best to the worst."""
    span = math.log(WORST / best) or 1.0
    return lambda rank: math.log(rank / best) / span


def _legend(drawing: Drawing, y: float) -> float:
    """The colours from best to worst; returns where the next line may begin."""
    for step in range(16):
        drawing.box(EDGE + CELL * step, y, CELL, CELL, between(step / 15, COLOURS))
    return y + CELL + GAP / 2


def _map(
    drawing: Drawing,
    place: tuple[float, float],
    title: str,
    cells: Cells,
    shade: Callable[[float], float],
) -> tuple[float, float]:
    """One map with its upper left corner at a place; returns the lower right corner."""
    (x, y), heads = place, len(cells[0])
    drawing.text(x, y + 12, title, look="small")
    for layer, row in enumerate(cells):
        for head, value in enumerate(row):
            where = x + CELL * head, y + HEAD + CELL * layer
            told = f"{title}, layer {layer}, head {head}"
            if math.isnan(value):
                drawing.box(*where, CELL, CELL, "empty", told)
            else:
                colour = between(shade(value), COLOURS)
                drawing.box(*where, CELL, CELL, colour, f"{told}: {value:.4g}")
    return x + CELL * heads, y + HEAD + CELL * len(cells)


def grid(entries: Sequence[tuple[int, int, float]]) -> Cells:
    """Values by layer and head, from (layer, head, value) in any order.

    Layers may have different numbers of heads; missing heads are NaN.
    """
    layers, heads = (int(max(entry[i] for entry in entries)) + 1 for i in range(2))
    cells = [[float("nan")] * heads for _ in range(layers)]
    for layer, head, value in entries:
        cells[layer][head] = value
    return cells


def _ranks(found: Calibration, measure: str, task: str, kind: str) -> Cells:
    return grid([(row.layer, row.head, row.mean) for row in found.of_task(measure, task, kind)])
