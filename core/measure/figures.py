"""Plots of results with matplotlib, an optional dependency."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.outputs import Output

POINTS = 150  # pixels per inch


def require() -> None:
    """Checks that plots can be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    _pyplot()


def heat_map(
    file: Path,
    values: Sequence[Sequence[float | None]],
    columns: Sequence[str],
    rows: Sequence[str],
    title: str,
    labels: tuple[str, str],
) -> None:
    """Draws rates as a grid of colours with their numbers.

    Args:
        file: .png or .svg.
        values: rows of cells, 0 to 1; None: an empty cell.
        columns, rows: their names.
        title: title of the figure.
        labels: labels of both axes.

    Raises:
        UsageError: matplotlib is not installed.
        LongctxError: the file cannot be written.
    """
    pyplot = _pyplot()
    size = (2.5 + 0.9 * len(columns), 1.6 + 0.42 * len(rows))
    figure, axes = pyplot.subplots(figsize=size)
    shown = [[float("nan") if value is None else value for value in row] for row in values]
    axes.imshow(shown, cmap="RdYlGn", vmin=-0.2, vmax=1.2, aspect="auto")
    for row, entries in enumerate(values):
        for column, value in enumerate(entries):
            text = "" if value is None else f"{value:.0%}"
            axes.text(column, row, text, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _save(figure, file, title)


def lines(
    file: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    labels: tuple[str, str],
    logarithmic: bool = False,
) -> None:
    """Draws lines.

    Args:
        file: .png or .svg.
        series: points of each line, by name.
        title: title of the figure.
        labels: labels of both axes.
        logarithmic: use a logarithmic horizontal axis.

    Raises:
        UsageError: matplotlib is not installed.
        LongctxError: the file cannot be written.
    """
    figure, axes = _pyplot().subplots(figsize=(7, 4))
    for name, points in series.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.legend(fontsize=8)
    _save(figure, file, title)


def _save(figure: Any, file: Path, title: str) -> None:
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    """Writes a figure, and closes it.

    Args:
        figure: a matplotlib figure.
        file: .png or .svg.

    Raises:
        LongctxError: the file cannot be written.
    """
    drawn = BytesIO()
    figure.savefig(drawn, format=file.suffix.removeprefix("."), dpi=POINTS)
    _pyplot().close(figure)
    Output(file).write(drawn.getvalue())


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        why = "matplotlib is not installed"
        raise UsageError("cannot draw", why, "pip install 'longctx[plot]'.") from error
    matplotlib.use("Agg")  # no window
    from matplotlib import pyplot

    return pyplot
