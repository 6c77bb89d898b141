"""A comparison as CSV, as Markdown and as a plot."""

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from longctx.core.common.outputs import Output
from longctx.core.measure import figures, markdown
from longctx.core.measure.eval.compare_rows import Row

HEADERS = (
    *("method", "gather by", "decode", "length", "questions", "quality", "low", "high"),
    *("gathered", "read s", "read tokens/s", "first token s", "total s", "tokens/s"),
    *("peak MB", "state MB", "note"),
)
NUMBERS = HEADERS[3:-1]
CEILING = "ceiling: full attention within the window"
NAME = "compare"


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row; a missing figure is an empty cell."""
    return (
        row.method,
        row.gather_by,
        row.decode,
        str(row.length),
        str(row.questions),
        *(_fixed(value, 3) for value in (row.quality, row.low, row.high, row.gathered)),
        _fixed(row.read_s, 2),
        _fixed(row.read_tokens_per_s, 0),
        *(_fixed(value, 3) for value in (row.first_token_s, row.total_s)),
        _fixed(row.tokens_per_s, 1),
        *(_fixed(None if v is None else v / 1e6, 1) for v in (row.peak_memory, row.state_bytes)),
        "; ".join(filter(None, (CEILING if row.ceiling else "", row.why))),
    )


def as_csv(rows: Sequence[Row]) -> str:
    """Comma-separated values, with headers."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEADERS, *map(cells, rows)])
    return out.getvalue()


def as_markdown(rows: Sequence[Row]) -> str:
    """A table in GitHub's Markdown."""
    return markdown.table(HEADERS, map(cells, rows), right=NUMBERS) + "\n"


def write(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Writes compare.csv, compare.md and, where there is something to draw, compare.svg.

    Raises:
        LongctxError: a file cannot be written.
    """
    texts = {f"{NAME}.csv": as_csv(rows), f"{NAME}.md": as_markdown(rows)}
    written = [folder / name for name in texts]
    for file, text in zip(written, texts.values(), strict=True):
        Output(file, remedy="Make room, run again.").write(text)
    if series := quality_by_length(rows):
        written.append(folder / f"{NAME}.svg")
        labels = ("tokens", "quality")
        figures.lines(written[-1], series, "Quality by length", labels)
    return written


def quality_by_length(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """A line's points for each method and way that finished; the ceiling's line is level."""
    series: dict[str, list[tuple[float, float]]] = {}
    lengths = [row.length for row in rows]
    for row in rows:
        if row.quality is None or row.why:
            continue
        if row.ceiling:
            ends = sorted({min(lengths), max(lengths)})
            name = f"{row.method} at {row.length:,} tokens"
            series[name] = [(length, row.quality) for length in ends]
        else:
            name = f"{row.method}, {row.gather_by}, {row.decode}"
            series.setdefault(name, []).append((row.length, row.quality))
    return series


def _fixed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
