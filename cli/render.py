"""Everything that is printed, and the one place that knows rich.

Results go to standard output, everything else to standard error. Text from documents, models,
files and errors passes `clean`, so that nothing in it can steer a terminal, and is never read as
markup.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from longctx.cli.text import clean, duration, one_line, size

if TYPE_CHECKING:
    from rich.console import Console

    from longctx.core.answer import Answer, Found
    from longctx.core.gather import Passage
    from longctx.core.ingest import Progress

SCHEMA_VERSION = 1
PLAIN_EVERY_MS = 30_000
QUIET_S = 2  # seconds that a copy takes before its progress is shown


def line(text: str) -> None:
    """One line of a result, on standard output."""
    print(clean(text), flush=True)


def note(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    print(clean(text), file=sys.stderr, flush=True)


def can_ask() -> bool:
    """Whether somebody sits at a terminal to answer."""
    return sys.stdin.isatty()


def prompt(text: str) -> None:
    """Asks for input on standard error."""
    print(clean(text), end="", file=sys.stderr, flush=True)


def print_json(values: dict[str, Any], file: IO[str] | None = None) -> None:
    """One JSON object on one line; ASCII alone, so that it is the same on every terminal."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"), file=file or sys.stdout, flush=True)


def stream(text: str) -> None:
    """A piece of an answer as it comes."""
    print(clean(text), end="", flush=True)


def passages(found: "Iterable[Passage]", scores: bool) -> None:
    """Passages as `file:line` and the text around their best token.

    Args:
        found: best first.
        scores: with each one's score.
    """
    console = _console(sys.stdout)
    for passage in found:
        place = f"{one_line(passage.source)}:{passage.best_line}:"
        score = f" {passage.score:.3f} " if scores else ""
        console.print(
            _text((place, "bold"), (score, "dim"), f" {one_line(passage.best_text)}"),
            soft_wrap=True,
        )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table on standard output.

    Args:
        headers: names of the columns.
        rows: their cells.
        right: columns of numbers.
    """
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        grid.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_text(one_line(cell)) for cell in row))
    _console(sys.stdout).print(grid)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line; a value may have several lines."""
    pairs = [(clean(name), clean(value)) for name, value in rows]
    width = max(len(name) for name, _ in pairs)
    console = _console(sys.stdout)
    for name, value in pairs:
        indented = value.replace("\n", "\n" + " " * (width + 2))
        console.print(_text((f"{name:<{width}}", "bold"), f"  {indented}"), soft_wrap=True)


def warn(found: "Found") -> None:
    """What a person should know of an answer or a search before believing it."""
    if not found.found:
        best = found.passages[0].score if found.passages else 0.0
        note(f"the document seems not to answer this (best score {best:.3f})")
    if found.tokens["dropped"]:
        note(f"the model's window had no room for {found.tokens['dropped']:,} gathered tokens")


def warn_of_answer(answer: "Answer") -> None:
    """The same of an answer, with what concerns its decoding."""
    warn(answer)
    if answer.reassigned:
        note("the answer went beyond the model's window: its tokens were given new positions")
    if answer.narrowed:
        note("fewer tokens were selected than usual, for the answer to have room in the window")


def confirm(question: str) -> bool:
    """Asks at the terminal; anything but y or yes is no."""
    prompt(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextmanager
def status(text: str) -> Iterator[None]:
    """Says at the terminal that something takes a while."""
    waiting = nullcontext()
    if sys.stderr.isatty():
        waiting = _drawing(_console(sys.stderr).status(clean(text)))
    with waiting:
        yield


_drawn: list[Any] = []  # bars and spinners at the terminal now


@contextmanager
def _drawing(live: Any) -> Iterator[Any]:
    """A bar or spinner of rich, drawn until the context ends or `stop_drawing` is called."""
    _drawn.append(live)
    try:
        with live:
            yield live
    finally:
        _drawn.remove(live)


def stop_drawing() -> None:
    """Ends all bars and spinners and shows the cursor, also from another thread."""
    for live in [*_drawn]:
        live.stop()


def _console(file: IO[str]) -> "Console":
    """A console that takes no text for markup; where nobody sees it, no line is folded."""
    from rich.console import Console

    return Console(
        file=file,
        width=None if file.isatty() else 1 << 15,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        emoji=False,
        highlight=False,
    )


def _text(*parts: str | tuple[str, str]) -> Any:
    from rich.text import Text

    return Text.assemble(*parts)


# --- the progress of an ingest ---


@contextmanager
def progress() -> "Iterator[Callable[[Progress], None]]":
    """Shows how far an ingest has come: a bar at a terminal, elsewhere a line every 30 s.

    Returns:
        What to call with each `Progress`.
    """
    if not sys.stderr.isatty():
        yield _every(PLAIN_EVERY_MS, lambda told: note(so_far(told)))
        return
    with _drawing(_bar()) as bar:
        task = bar.add_task("", total=None, detail="loading the model")
        yield lambda told: bar.update(
            task, total=told.total, completed=told.processed, detail=so_far(told)
        )


def _bar() -> Any:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[detail]}", markup=False))
    return Progress(*columns, console=_console(sys.stderr), transient=True, redirect_stdout=False)


def _every(period_ms: int, tell: "Callable[[Progress], None]") -> "Callable[[Progress], None]":
    due = period_ms

    def told(state: "Progress") -> None:
        nonlocal due
        if state.time_ms >= due:
            due = state.time_ms + period_ms
            tell(state)

    return told


def so_far(state: "Progress") -> str:
    """Tokens that were read, speed and time left."""
    seconds = max(state.time_ms, 1) / 1000
    read = state.processed - state.cache
    rate = state.tokens * read / max(state.processed, 1) / seconds  # of this run
    parts = [f"{state.tokens:,} tokens", f"{rate:,.0f} tokens/s"]
    if state.total is not None and read:
        parts.append(f"{duration(seconds * (state.total - state.processed) / read)} left")
    return ", ".join(parts)


# --- the progress of a copy or a check ---


class ByteProgress(ExitStack):
    """Shows how many bytes are done, once that takes over two seconds.

    A bar at a terminal, elsewhere a line every 30 s. Use it as a context.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[float, int] | None = None  # when, and how many bytes were done
        self._due = float(QUIET_S)
        self._show: Callable[..., None] | None = None

    def tell(self, done: int, total: int) -> None:
        """Notes that `done` of `total` bytes are done; the first time, that it has begun."""
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        seconds, new = now - began, done - before
        if seconds < self._due or not new:
            return
        left = duration(seconds * (total - done) / new)
        told = f"{size(round(new / seconds))}/s, {left} left"
        if not sys.stderr.isatty():
            note(f"{size(done)} of {size(total)}, {told}")
            self._due = seconds + PLAIN_EVERY_MS / 1000
            return
        if self._show is None:
            bar = self.enter_context(_drawing(_bar()))
            self._show = partial(bar.update, bar.add_task("", total=total, detail=""))
        self._show(total=total, completed=done, detail=told)

    def hide(self) -> None:
        """Makes room for a line; the next `tell` shows the progress again."""
        self.close()
        self._show = None


# --- grids of rates ---


class Grid:
    """A table of rates that fills while a long run goes on, with a line on what it does now.

    Args:
        corner: what the rows are.
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
        """Says what is done now."""
        self._told = one_line(text)

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(self.table(), _text((self._told, "dim")))

    def table(self) -> Any:
        """What rich prints: a row's name, and per cent on a colour between red and green."""
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
        return _text((f" {share:.0%} ", f"black on rgb({red},{green},80)"))


class _Lines(Grid):
    """The same where nobody sits at a terminal: what is done now, every 30 s."""

    _due: float | None = None

    def tell(self, text: str) -> None:
        now = time.monotonic()
        self._due = self._due or now + PLAIN_EVERY_MS / 1000
        if now >= self._due:
            self._due = now + PLAIN_EVERY_MS / 1000
            note(text)


@contextmanager
def live_grid(corner: str, columns: Sequence[str], rows: Sequence[str]) -> Iterator[Grid]:
    """A grid on standard error while the context lasts; elsewhere than at a terminal, lines."""
    if not sys.stderr.isatty():
        yield _Lines(corner, columns, rows)
        return
    from rich.live import Live

    grid, console = Grid(corner, columns, rows), _console(sys.stderr)
    options = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    with _drawing(Live(grid, console=console, refresh_per_second=2, **options)):
        yield grid


def heat_map(grid: Grid) -> None:
    """A grid on standard output."""
    _console(sys.stdout).print(grid.table())
