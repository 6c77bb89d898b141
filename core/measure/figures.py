"""Plots of results: a grid of rates, and lines."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from longctx.core.common.outputs import Output
from longctx.core.report.svg import RATES, Drawing, between, width_of

SERIES = ("#3b82d6", "#d9730d", "#2f9e5b", "#c2478c", "#8a63d2", "#b08900", "#0f9b9b", "#d1453b")
CELL = (56, 26)  # width and height of a cell
PLOT = (560, 280)  # of the area of lines
EDGE = 16


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
        file: .svg.
        values: rows of cells, 0 to 1; None: an empty cell.
        columns, rows: their names.
        title: title of the figure, of one line or several.
        labels: labels of both axes.

    Raises:
        LongctxError: the file cannot be written.
    """
    titles = title.splitlines()
    wide = max([CELL[0], *(width_of(name) + 10 for name in columns)])
    left = EDGE + 24 + max([0.0, *map(width_of, rows)])
    top = EDGE + 44 + 18 * len(titles)
    right, bottom = left + wide * len(columns), top + CELL[1] * len(rows)
    drawing = Drawing()
    for number, text in enumerate(titles):
        drawing.text(EDGE, EDGE + 12 + 18 * number, text, look="title" if number == 0 else "")
    drawing.text((left + right) / 2, top - 28, labels[0], at="middle")
    drawing.text(EDGE + 10, (top + bottom) / 2, labels[1], at="middle", up=True)
    for number, name in enumerate(columns):
        drawing.text(left + wide * (number + 0.5), top - 8, name, at="middle")
    for number, (name, entries) in enumerate(zip(rows, values, strict=True)):
        y = top + CELL[1] * number
        drawing.text(left - 8, y + 17, name, at="end")
        for place, value in enumerate(entries):
            x, told = left + wide * place, f"{columns[place]}, {name}"
            look = "empty" if value is None else between(value, RATES)
            drawing.box(x + 1, y + 1, wide - 2, CELL[1] - 2, look, told)
            if value is not None:
                drawing.text(x + wide / 2, y + 17, f"{value:.0%}", at="middle", look="in")
    width = max([right, *(EDGE + 1.2 * width_of(text) for text in titles)]) + EDGE
    Output(file).write(drawing.svg(width, bottom + EDGE, title))


def lines(
    file: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    labels: tuple[str, str],
) -> None:
    """Writes the picture of `of_lines` to a .svg file.

    Raises:
        LongctxError: the file cannot be written.
    """
    Output(file).write(of_lines(series, title, labels))


def of_lines(
    series: Mapping[str, Sequence[tuple[float, float]]], title: str, labels: tuple[str, str]
) -> str:
    """Rates over lengths as SVG, on a logarithmic horizontal axis.

    Args:
        series: points of each line, by name: a length over 0, and a rate from 0 to 1.
        title: title of the figure.
        labels: labels of both axes.
    """
    drawing, (wide, high) = Drawing(), PLOT
    left, top = EDGE + 60, EDGE + 40
    places = sorted({x for points in series.values() for x, _ in points})
    span = math.log2(places[-1] / places[0]) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + wide * math.log2(x / places[0]) / span, top + high * (1 - y)

    drawing.text(EDGE, EDGE + 12, title, look="title")
    drawing.text(left + wide / 2, top + high + 44, labels[0], at="middle")
    drawing.text(EDGE + 10, top + high / 2, labels[1], at="middle", up=True)
    for step in range(5):
        _, y = at(places[0], step / 4)
        drawing.line([(left, y), (left + wide, y)])
        drawing.text(left - 8, y + 4, f"{step / 4:.0%}", at="end")
    free = 0.0
    for x in places:
        place, name = at(x, 0)[0], f"{x:,.0f}"
        drawing.line([(place, top + high), (place, top + high + 5)])
        if place - width_of(name) / 2 >= free:  # else it would cover the one before
            drawing.text(place, top + high + 20, name, at="middle")
            free = place + width_of(name) / 2 + 4
    for number, (name, points) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        drawing.line([at(*point) for point in points], colour)
        for x, y in points:
            drawing.dot(*at(x, y), colour, f"{name}: {y:.0%} at {x:,.0f}")
        y = top + high + 70 + 18 * number
        drawing.line([(left, y - 4), (left + 24, y - 4)], colour)
        drawing.text(left + 32, y, name)
    width = max([left + wide, *(left + 32 + width_of(name) for name in series)]) + 3 * EDGE
    return drawing.svg(width, top + high + 70 + 18 * len(series), title)
