"""Ranks and copy scores as heat maps, layers by heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longctx.core.measure import figures
from longctx.core.measure.calibrate.ranks import KINDS
from longctx.core.measure.calibrate.report import TITLES, Calibration
from longctx.core.measure.calibrate.tasks import TASKS

INCH = 0.13  # inches per head or layer
WORST = 1.0  # rank at which the colours end; 0.5 is chance

Cells = list[list[float]]


def draw(file: Path, found: Calibration) -> None:
    """Draws a row of heat maps per measure and task, one map per kind, and the copy scores.

    Args:
        file: .png or .svg.
        found: the results.

    Raises:
        UsageError: matplotlib is not installed.
        LongctxError: the file cannot be written.
    """
    figures.require()
    from matplotlib import pyplot
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    copying = grid([(each.layer, each.head, each.score) for each in found.copying])
    widths = [max(4, len(_ranks(found, found.rank_by, TASKS[0], kind)[0])) for kind in KINDS]
    count = len(found.measures) * len(TASKS) + 1
    size = (3 + INCH * sum(widths), 2.5 + count * max(1.4, INCH * len(copying)))
    figure, axes = pyplot.subplots(
        count, len(KINDS), figsize=size, squeeze=False, width_ratios=widths, layout="constrained"
    )
    for number, measure in enumerate(found.measures):
        own = axes[number * len(TASKS) : (number + 1) * len(TASKS)]
        colours = LogNorm(min(row.mean for row in found.rows if row.measure == measure), WORST)
        shown = _draw_ranks(own, found, measure, colours)
        figure.colorbar(shown, ax=own, label=TITLES[measure])
    last = axes[-1]
    shown = last[0].imshow(copying, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    last[0].set_title("copy score", fontsize=7)
    figure.colorbar(shown, ax=last, label="copy score")
    for axis in last[1:]:
        axis.set_axis_off()
    for axis in axes.flat:
        axis.tick_params(labelsize=6)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.supxlabel("head")
    figure.supylabel("layer")
    figure.suptitle(f"{found.model}, {found.samples} samples a task", fontsize=10)
    figures.save(figure, file)


def _draw_ranks(axes: Any, found: Calibration, measure: str, colours: Any) -> Any:
    """A row for each task, on axes (tasks, kinds); returns one of the images."""
    for place, task in zip(axes, TASKS, strict=True):
        for axis, kind in zip(place, KINDS, strict=True):
            cells = _ranks(found, measure, task, kind)
            axis.imshow(cells, cmap="viridis_r", norm=colours, aspect="auto")
            axis.set_title(f"{task}: {kind}", fontsize=7)
    return axes[0][0].images[0]


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
