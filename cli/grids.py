"""Coloured grids of rates: one that fills during a long run, and one as a result."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from longctx.cli import progress, render
from longctx.cli.progress_lines import Lines
from longctx.cli.run import Form, current
from longctx.cli.text import one_line

if TYPE_CHECKING:
    from longctx.core.ingest.job import Progress


class Grid:
    """A table of rates that fills during a long run, with a line on the current work.

    Args:
        corner: what the rows stand for.
        columns, rows: their names.
    """

    def __init__(self, corner: str, columns: Sequence[str], rows: Sequence[str]):
        self._headers, self._rows = [corner, *columns], rows
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}
        self._told = ""

    def add(self, row: int, column: int, hit: bool) -> None:
        """Counts one more trial of a cell."""
        hits, count = self._cells.get((row, column), (0, 0))
        self._cells[row, column] = hits + hit, count + 1

    def tell(self, text: str) -> None:
        """Shows the current work."""
        self._told = one_line(text)

    def read(self, what: str, state: "Progress") -> None:
        """Shows the progress of reading."""
        self.tell(f"{what}: {progress.so_far(state)}")

    def asked(self, what: str, done: int, total: int, kept: int = 0) -> None:
        """Shows how many questions were asked, and how many of those by an earlier run."""
        self.tell(f"{what}: asked {done} of {total}")

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(self.table(), render.styled((self._told, "dim")))

    def table(self) -> Any:
        """The grid as a rich table: per cent, on colours from red to green."""
        from rich.table import Table

        grid = Table(box=None, pad_edge=False, header_style="bold")
        for header in self._headers:
            grid.add_column(one_line(header), justify="right")
        for row, name in enumerate(self._rows):
            cells = (self._cell(row, column) for column in range(len(self._headers) - 1))
            grid.add_row(one_line(name), *cells)
        return grid

    def _cell(self, row: int, column: int) -> Any:
        hits, count = self._cells.get((row, column), (0, 0))
        if not count:
            return "-"
        share = hits / count
        red, green = round(255 * min(1, 2 - 2 * share)), round(200 * min(1, 2 * share))
        return render.styled((f" {share:.0%} ", f"black on rgb({red},{green},80)"))


class _Lines(Grid):
    """The same without a terminal: a line every 30 s."""

    _due: float | None = None

    def tell(self, text: str) -> None:
        now = time.monotonic()
        self._due = self._due or now + progress.PLAIN_EVERY_MS / 1000
        if now >= self._due:
            self._due = now + progress.PLAIN_EVERY_MS / 1000
            progress.plain(text)


class _JsonGrid(Grid):
    """The same as JSON lines."""

    _what, _lines = "", None

    def read(self, what: str, state: "Progress") -> None:
        self._of(f"{what}: reading", "bytes").tell(**vars(state))

    def asked(self, what: str, done: int, total: int, kept: int = 0) -> None:
        milliseconds = round(1000 * current().seconds)
        self._of(f"{what}: asking", "questions").tell(total, kept, done, milliseconds)

    def _of(self, what: str, unit: str) -> Lines:
        if self._lines is None or what != self._what:
            self._what, self._lines = what, progress.lines(what, unit)
        return self._lines


@contextmanager
def live_grid(corner: str, columns: Sequence[str], rows: Sequence[str]) -> Iterator[Grid]:
    """A grid on standard error while the context lasts; without a terminal, lines."""
    if not progress.draws():
        kind = _JsonGrid if current().form is Form.JSON else _Lines
        yield kind(corner, columns, rows)
        return
    from rich.live import Live

    grid, console = Grid(corner, columns, rows), render.open_console(sys.stderr)
    more: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    with progress.drawing(Live(grid, console=console, refresh_per_second=2, **more)):
        yield grid


def heat_map(grid: Grid) -> None:
    """A grid on standard output."""
    render.open_console(sys.stdout).print(grid.table())
