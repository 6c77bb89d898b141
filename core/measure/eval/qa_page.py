"""Questions on documents as a page: recall and answers in grids, and every question with both."""

from collections.abc import Callable, Sequence
from typing import Any

from longctx.core.measure.eval.qa import RECALL, QuestionReport, Rate, summed
from longctx.core.measure.journal import Record
from longctx.core.report.html import Html, Parts, element
from longctx.core.report.page import page
from longctx.core.report.tables import Cell, facts, grid, table

TITLE = "Questions on documents"
BOUND = "contained"  # the scorer by which an answer counts as right in the list of questions


def qa_page(reports: Sequence[QuestionReport]) -> str:
    """The page of one document, or of several with their sum."""
    sections = [_document(report) for report in reports]
    if len(reports) > 1 and (rates := summed(reports)):
        total = sum(len(report.trials) for report in reports)
        sections.insert(0, _rates(f"All documents: {total:,} questions", rates))
    return page(TITLE, element("h1", TITLE), sections)


def _document(report: QuestionReport) -> Parts:
    title = f"{report.document}: {report.tokens:,} tokens, {len(report.trials):,} questions"
    sources = list(report.trials[0]["recall"]) if report.trials else []
    left = [("not by " + by, why) for by, why in report.left_out.items()]
    return [
        _rates(title, report.rates),
        facts(left) if left else None,
        element("details", element("summary", "Every question"), _questions(report, sources)),
        element("details", element("summary", "What was run"), facts(_facts(report))),
    ]


def _rates(title: str, rates: Sequence[Rate]) -> Parts:
    recall = [rate for rate in rates if rate.what == RECALL]
    judged = [rate for rate in rates if rate.what != RECALL]
    return [
        element("h2", title),
        _grid("gathered, by tokens", "gathered by", recall, lambda rate: f"{rate.budget:,}"),
        _grid("answers that are right", "answered from", judged, _scorer) if judged else None,
    ]


def _grid(caption: str, corner: str, rates: Sequence[Rate], column: Callable[[Rate], str]) -> Html:
    names = list(dict.fromkeys(rate.gather_by for rate in rates))
    columns = list(dict.fromkeys(map(column, rates)))
    found = {(rate.gather_by, column(rate)): rate for rate in rates}
    cells = [[_cell(found[name, one]) for one in columns] for name in names]
    return element("figure", element("figcaption", caption), grid(corner, columns, names, cells))


def _scorer(rate: Rate) -> str:
    return rate.what.replace("_", " ")


def _cell(rate: Rate) -> Cell:
    hits = f"{round(rate.rate * rate.total):,} of {rate.total:,}, " if rate.what == RECALL else ""
    return Cell(rate.rate, f"{hits}{rate.low:.0%} to {rate.high:.0%}")


def _questions(report: QuestionReport, sources: Sequence[str]) -> Html:
    headers = ["", "question", "accepted", *(f"gathered by {by}" for by in sources)]
    asked = [by for by in sources if report.trials[0]["answers"].get(by)]
    headers += [f"answer from {by}" for by in asked]
    return table(headers, (_row(trial, sources, asked) for trial in report.trials), right=("",))


def _row(trial: Record, sources: Sequence[str], asked: Sequence[str]) -> list[Parts]:
    ranks = [trial["rank"][by] for by in sources]
    return [
        str(trial["number"]),
        trial["question"],
        " / ".join(trial["accepted"]),
        *("no" if rank is None else f"within {rank:,}" for rank in ranks),
        *(_answer(trial["answers"][by]) for by in asked),
    ]


def _answer(asked: dict[str, Any]) -> Parts:
    is_right = asked[BOUND] >= 1
    text = asked["answer"] or "(none)"
    return element("mark", text) if is_right else text


def _facts(report: QuestionReport) -> list[tuple[str, str]]:
    settings = report.settings
    answerer = settings.get("answerer") or settings.get("server") or settings
    told = [
        ("files", ", ".join(report.files)),
        ("read by", f"{settings['model']}, method {settings['method']}"),
        ("answered by", str(answerer["model"])),
        ("device", f"{settings['device']}, {settings['dtype']}"),
    ]
    if "server" in settings:
        told.append(("sent to", settings["server"]["to"]))
    return told
