"""A comparison as a page: quality by way and length in a grid, as lines, and all figures."""

from collections.abc import Sequence

from longctx.core.measure import figures
from longctx.core.measure.eval.compare import ComparisonReport
from longctx.core.measure.eval.compare_files import HEADERS, NUMBERS, cells, quality_by_length
from longctx.core.measure.eval.compare_rows import Row
from longctx.core.report.html import Html, element
from longctx.core.report.page import page, picture
from longctx.core.report.tables import Cell, facts, grid, table

TITLE = "Methods compared"


def compare_page(report: ComparisonReport) -> str:
    """The page of a comparison."""
    series = quality_by_length(report.rows)
    drawn = figures.of_lines(series, "Quality by length", ("tokens", "quality")) if series else ""
    named = ("model", "device", "dtype", "tasks", "samples", "seed")
    told = [(name, _told(report.settings[name])) for name in named if name in report.settings]
    return page(
        TITLE,
        element("h1", TITLE),
        _grid(report.rows),
        element("figure", picture(drawn)) if drawn else None,
        element("h2", "All figures"),
        table(HEADERS, map(cells, report.rows), right=NUMBERS),
        element("h2", "What was run"),
        facts(told),
    )


def _grid(rows: Sequence[Row]) -> Html:
    """The quality of each way, the ceiling's too, at every length."""
    lengths = sorted({row.length for row in rows})
    ways = list(dict.fromkeys(row.line for row in rows))
    found = {(row.line, row.length): row for row in rows}
    shown = [[_cell(found.get((way, length))) for length in lengths] for way in ways]
    names = [", ".join(way[1:]) + " (ceiling)" * way[0] for way in ways]
    caption = "quality, with its 95% interval, by tokens of the text"
    columns = [f"{length:,}" for length in lengths]
    return element("figure", element("figcaption", caption), grid("way", columns, names, shown))


def _cell(row: Row | None) -> Cell:
    if row is None or row.quality is None:
        return Cell(None)
    if row.low is None or row.high is None:
        return Cell(row.quality)
    return Cell(row.quality, f"{row.low:.0%} to {row.high:.0%}")


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
