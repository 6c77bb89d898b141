"""Tables of a page: facts, rows of cells, and grids of rates with their figures."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from longctx.core.report.html import Html, Parts, element
from longctx.core.report.style import rate_class


@dataclass(frozen=True)
class Cell:
    """A cell of a grid.

    Attributes:
        rate: 0 to 1, which colours it; None: nothing is known.
        told: what stands below the rate, such as "19 of 20".
    """

    rate: float | None
    told: str = ""


def facts(told: Iterable[tuple[str, str]]) -> Html:
    """Names and what is said of them, one a row."""
    rows = (
        element("tr", element("th", name, scope="row"), element("td", text)) for name, text in told
    )
    return _wide(element("table", element("tbody", rows), class_="facts"))


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Parts]], right: Collection[str] = ()
) -> Html:
    """Rows of cells.

    Args:
        headers: names of the columns.
        rows: their cells.
        right: columns of numbers, which are aligned right.
    """
    looks = ["number" if header in right else None for header in headers]
    names = (
        element("th", header, scope="col", class_=look)
        for header, look in zip(headers, looks, strict=True)
    )
    lines = (
        element(
            "tr", (element("td", cell, class_=look) for cell, look in zip(row, looks, strict=True))
        )
        for row in rows
    )
    return _wide(element("table", element("thead", element("tr", names)), element("tbody", lines)))


def grid(
    corner: str, columns: Sequence[str], rows: Sequence[str], cells: Sequence[Sequence[Cell]]
) -> Html:
    """Rates on their colours, with their figures.

    Args:
        corner: what the rows stand for, and the columns.
        columns, rows: their names.
        cells: of each row, one for each column.
    """
    head = (element("th", name, scope="col") for name in columns)
    lines = (
        element("tr", element("th", name, scope="row"), map(_cell, row))
        for name, row in zip(rows, cells, strict=True)
    )
    top = element("thead", element("tr", element("th", corner), head))
    return _wide(element("table", top, element("tbody", lines), class_="grid"))


def _cell(cell: Cell) -> Html:
    if cell.rate is None:
        return element("td", "")
    small = element("small", cell.told) if cell.told else None
    return element("td", f"{cell.rate:.0%}", small, class_=rate_class(cell.rate))


def _wide(inside: Html) -> Html:
    """A table that scrolls sideways where the page is narrower."""
    return element("div", inside, class_="wide", tabindex=0)
