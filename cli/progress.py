"""The progress of a run: bars and spinners at a terminal, lines elsewhere, or JSON for programs.

It goes to standard error, in the form that `--progress` names. Knows only the numbers of what is
measured.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from longctx.cli import render
from longctx.cli.progress_lines import Lines, every
from longctx.cli.run import Form, current
from longctx.cli.text import clean, duration, one_line, size

if TYPE_CHECKING:
    from longctx.core.ingest.job import Overall, Progress

PLAIN_EVERY_MS = 30_000
NARROW = 80  # columns of a terminal under which a bar says only the share and the time left
QUIET_S = 2  # seconds of copying before progress is shown


@contextmanager
def status(text: str) -> Iterator[None]:
    """Shows at the terminal that something takes a while."""
    waiting = nullcontext()
    if draws():
        waiting = drawing(render.open_console(sys.stderr).status(clean(text)))
    with waiting:
        yield


_drawn: list[Any] = []  # bars and spinners now at the terminal


@contextmanager
def drawing(live: Any) -> Iterator[Any]:
    """Draws a rich bar or spinner until the context ends or `stop_drawing` is called."""
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


def draws() -> bool:
    """Whether bars and spinners are requested, and standard error is a terminal that shows them."""
    plain = os.environ.get("TERM", "") in ("dumb", "unknown")
    return current().form is Form.BAR and sys.stderr.isatty() and not plain


# --- the progress of an ingest ---


@contextmanager
def reading(what: str = "reading") -> "Iterator[Callable[..., None]]":
    """Shows the progress of an ingest: a bar at a terminal, elsewhere a line every 30 s.

    Args:
        what: names it where progress is JSON.

    Returns:
        A function to call with each `Progress`, and with the document's name if there are several.
    """
    if current().form is Form.JSON:
        with lines(what, "bytes") as told:
            yield lambda state, document="": told.tell(**_values(state), **_named(document))
        return
    if not draws():
        yield every(PLAIN_EVERY_MS, lambda told, document: plain(so_far(told, document)))
        return
    with drawing(_bar()) as bar:
        loading = "loading the model"
        task = bar.add_task("", total=None, detail=loading, brief=loading)
        yield lambda told, document="": bar.update(
            task,
            total=_whole(told).total,
            completed=_whole(told).processed,
            detail=so_far(told, document),
            brief=_briefly(_whole(told).processed, _whole(told).total, _left(_whole(told))),
        )


def _values(state: "Progress") -> dict[str, Any]:
    """The numbers of a progress; `overall` only where there are many documents.

    `what` only where it is not read but encoded.
    """
    values = dict(vars(state))
    overall, phase = values.pop("overall"), values.pop("phase")
    values |= {"what": phase} if phase else {}
    return values if overall is None else {**values, "overall": vars(overall)}


def _named(document: str) -> dict[str, Any]:
    """The key that names one of several documents."""
    return {"document": document} if document else {}


def _bar() -> Any:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = render.open_console(sys.stderr)
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[detail]}", markup=False))
    if console.width < NARROW:
        columns = (BarColumn(bar_width=8), TextColumn("{task.fields[brief]}", markup=False))
    return Progress(*columns, console=console, transient=True, redirect_stdout=False)


def _briefly(done: int, total: int | None, left: str) -> str:
    """What a narrow terminal has room for."""
    share = f"{done / total:.0%}" if total else ""
    return ", ".join(part for part in (share, left) if part)


def lines(what: str, unit: str) -> Lines:
    """Progress as JSON, one object a line on standard error; a context."""
    return Lines(what, unit, _progress_line)


def _progress_line(values: dict[str, Any]) -> None:
    render.print_json({"progress": current().command, **values}, sys.stderr)


def plain(text: str) -> None:
    """A line of progress where no bar can be drawn."""
    if current().form is Form.BAR:
        print(render.indented(text), file=sys.stderr, flush=True)


def step(
    text: str, done: int = 0, total: int | None = None, unit: str = "steps", kept: int = 0
) -> None:
    """Shows that a step of a long run begins.

    Args:
        text: what it is.
        done, total: how many are done, of how many.
        unit: what they are, in the plural.
        kept: how many of those done come from an earlier run.
    """
    if current().form is Form.JSON:
        with lines(one_line(text), unit) as told:
            told.tell(total, kept, done, round(1000 * current().seconds))
    else:
        plain(text)


def so_far(state: "Progress", document: str = "") -> str:
    """Tokens read, speed and time left; of many documents, those of all, and how many are done.

    While passages are encoded, it begins with that.
    """
    whole = _whole(state)
    parts = [f"{whole.tokens:,} tokens", f"{whole.tokens_per_s:,.0f} tokens/s"]
    if left := _left(whole):
        parts.append(left)
    if overall := state.overall:
        told = f"{overall.documents:,} of {overall.of:,} documents, {', '.join(parts)}"
        doing = ", ".join(part for part in (document, state.phase) if part)
        return f"{told}: {doing}" if doing else told
    before = [part for part in (document, state.phase) if part]
    return ": ".join([*before, ", ".join(parts)])


def _whole(state: "Progress") -> "Progress | Overall":
    """The progress of all that the command reads."""
    return state.overall or state


def _left(state: "Progress | Overall") -> str:
    """The time left of a reading; empty where nothing says how long it takes."""
    return "" if state.left_s is None else f"{duration(state.left_s)} left"


# --- the progress of a copy or a check ---


class ByteProgress(ExitStack):
    """Shows how many bytes are done, once that takes over two seconds.

    A bar at a terminal, elsewhere a line every 30 s. Use it as a context manager.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[float, int] | None = None  # when, and how many bytes were done
        self._due = float(QUIET_S)
        self._show: Callable[..., None] | None = None
        self._lines: Lines | None = None

    def tell(self, done: int, total: int) -> None:
        """Notes that `done` of `total` bytes are done; the first call marks the start."""
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        seconds, new = now - began, done - before
        if current().form is Form.JSON:
            if self._lines is None:
                self._lines = self.enter_context(lines("bytes", "bytes"))
            self._lines.tell(total, 0, done, round(1000 * seconds))
            return
        if seconds < self._due or not new:
            return
        left = f"{duration(seconds * (total - done) / new)} left"
        told = f"{size(round(new / seconds))}/s, {left}"
        if not draws():
            plain(f"{size(done)} of {size(total)}, {told}")
            self._due = seconds + PLAIN_EVERY_MS / 1000
            return
        if self._show is None:
            bar = self.enter_context(drawing(_bar()))
            self._show = partial(bar.update, bar.add_task("", total=total, detail="", brief=""))
        brief = _briefly(done, total, left)
        self._show(total=total, completed=done, detail=told, brief=brief)

    def hide(self) -> None:
        """Makes room for a line; the next `tell` shows the progress again."""
        self.close()
        self._show = self._lines = None
