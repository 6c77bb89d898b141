"""The tables of `longctx eval qa`: rows are gather sources, columns are budgets.

Each can be printed as text or as Markdown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longctx.cli import render
from longctx.cli.text import one_line

if TYPE_CHECKING:
    from longctx.core.measure.eval.qa import QuestionReport, Rate

WAYS = {
    "place": "by place",
    "line": "by their text on a line",
    "text": "by their text anywhere",
}
Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
        title: a line above it; empty: it belongs to the previous table.
        headers: names of the columns.
        rows: their cells.
    """

    title: str
    headers: Row
    rows: list[Row]


def of_reports(reports: "Sequence[QuestionReport]") -> Iterator[Table]:
    """Recall, and answers if any, for each document; for several, also in total."""
    from longctx.core.measure.eval.qa import summed

    for report in reports:
        yield from _of_rates(_title(report, reports), report.rates)
    if len(reports) > 1 and (rates := summed(reports)):
        counted = {way: sum(report.counted[way] for report in reports) for way in WAYS}
        absent = sum(report.counted["absent"] for report in reports)
        title = f"in sum: {_questions({**counted, 'absent': absent})}"
        yield from _of_rates(title, rates)


def show(tables: Iterable[Table], as_markdown: bool) -> None:
    """Prints them as text, or as GitHub's Markdown."""
    from longctx.core.measure import markdown

    for number, table in enumerate(tables):
        if number:
            render.line("")
        if table.title:
            render.line(markdown.escaped(table.title) if as_markdown else table.title)
            render.line("")
        if as_markdown:
            render.line(markdown.table(table.headers, table.rows))
        else:
            render.table(table.headers, table.rows)


def _title(report: "QuestionReport", reports: "Sequence[QuestionReport]") -> str:
    same = [one for one in reports if one.document == report.document]
    files = f" ({', '.join(map(one_line, report.files))})" if len(same) > 1 else ""
    questions = _questions(report.counted)
    answerer = report.settings.get("answerer")  # where it is not the model that read the document
    by = f", answered by {one_line(str(answerer['model']))}" if answerer else ""
    return f"{report.document}{files}: {report.tokens:,} tokens, {questions}{by}"


def _questions(counted: dict[str, int]) -> str:
    """How many questions, how they are counted, and how many answers occur nowhere."""
    total = sum(counted[way] for way in WAYS)
    ways = [
        f"{counted[way]:,} {told}" if counted[way] < total else told
        for way, told in WAYS.items()
        if counted[way]
    ]
    text = f"{total:,} question{'s' * (total != 1)}, counted {', '.join(ways)}"
    nowhere = f"; the answers of {counted['absent']:,} stand nowhere and count as not gathered"
    return text + (nowhere if counted["absent"] else "")


def _of_rates(title: str, rates: "Sequence[Rate]") -> Iterator[Table]:
    from longctx.core.measure.eval.qa import RECALL

    recall = _by_source(rate for rate in rates if rate.what == RECALL)
    judged = _by_source(rate for rate in rates if rate.what != RECALL)
    budgets = [f"{rate.budget:,}" for rate in next(iter(recall.values()), [])]
    rows = [(by, *map(_hits, found)) for by, found in recall.items()]
    yield Table(title, ("gathered by", *budgets), rows)
    if judged:
        scorers = [rate.what.replace("_", " ") for rate in next(iter(judged.values()))]
        rows = [(by, *map(_share, found)) for by, found in judged.items()]
        yield Table("", ("answered from", *scorers), rows)


def _by_source(rates: "Iterable[Rate]") -> "dict[str, list[Rate]]":
    found: dict[str, list[Rate]] = {}
    for rate in rates:
        found.setdefault(rate.gather_by, []).append(rate)
    return found


def _hits(rate: "Rate") -> str:
    return (
        f"{round(rate.rate * rate.total):,} of {rate.total:,} ({rate.low:.0%} to {rate.high:.0%})"
    )


def _share(rate: "Rate") -> str:
    return f"{rate.rate:.1%} ({rate.low:.0%} to {rate.high:.0%})"
