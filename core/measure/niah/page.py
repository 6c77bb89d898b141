"""Results of a needle test as a page: grids with their figures, kinds, and what was missed."""

from collections.abc import Sequence

from longctx.core.common.units import show_tokens
from longctx.core.measure.niah.report import NOTE, NeedleReport, Trial, counts
from longctx.core.report.html import Html, Parts, element
from longctx.core.report.page import page
from longctx.core.report.tables import Cell, facts, grid, table

MISSED = 200  # wrong answers that are listed
KINDS = ("kind", "asked", "answered", "gathered", "rate", "95% interval")
WRONG = ("tokens", "depth", "kind", "question", "expected", "answer", "gathered")


def needle_page(report: NeedleReport) -> str:
    """The page of a needle test."""
    verdict = "passed" if report.passed else "not passed"
    told = f"{report.rate:.1%} answered, {report.settings['bar']:.1%} wanted: {verdict}."
    kinds = report.by_kind()
    grids = [_grid(report, report.asked, "all kinds" if len(kinds) > 1 else "")]
    if len(kinds) > 1:
        grids += [_grid(report, trials, kind) for kind, trials in kinds.items()]
    return page(
        "Needles at every depth",
        element("h1", "Needles at every depth"),
        element("p", told, class_="answer"),
        element("p", f"{NOTE[0].upper()}{NOTE[1:]}.", class_="soft"),
        grids,
        element("h2", "Kinds"),
        table(KINDS, _kinds(report), right=KINDS[1:]),
        _missed([trial for trial in report.asked if not trial.answered]),
        element("h2", "What was run"),
        facts(_facts(report)),
    )


def _grid(report: NeedleReport, trials: Sequence[Trial], kind: str) -> Html:
    """The shares answered, by depth and length."""
    lengths, depths = report.settings["lengths"], report.settings["depths"]
    found: dict[tuple[int, float], list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.length, trial.depth), []).append(trial)
    cells = [[_cell(found.get((length, depth), [])) for length in lengths] for depth in depths]
    caption = "answered, by depth and tokens of the text" + f": {kind}" * bool(kind)
    names = [f"{depth:.0%}" for depth in depths]
    return element(
        "figure",
        element("figcaption", caption),
        grid("depth", [show_tokens(length) for length in lengths], names, cells),
    )


def _cell(trials: Sequence[Trial]) -> Cell:
    if not trials:
        return Cell(None)
    hits = sum(trial.answered for trial in trials)
    return Cell(hits / len(trials), f"{hits:,} of {len(trials):,}")


def _kinds(report: NeedleReport) -> list[Sequence[str]]:
    kinds = report.by_kind()
    named = {**kinds, "all": report.asked} if len(kinds) > 1 else kinds
    rows = []
    for kind, trials in named.items():
        told = counts(trials)
        low, high = told["interval"]
        numbers = (f"{told[name]:,}" for name in ("asked", "answered", "gathered"))
        rows.append((kind, *numbers, f"{told['rate']:.1%}", f"{low:.1%} to {high:.1%}"))
    return rows


def _missed(missed: Sequence[Trial]) -> Parts:
    if not missed:
        return None
    rows = (
        (
            f"{trial.length:,}",
            f"{trial.depth:.0%}",
            *(trial.kind, trial.question, trial.expected, trial.answer),
            "yes" if trial.gathered else "no",
        )
        for trial in missed[:MISSED]
    )
    more = len(missed) - MISSED
    return [
        element("h2", f"Not answered: {len(missed):,}"),
        table(WRONG, rows, right=WRONG[:2]),
        element("p", f"and {more:,} more", class_="soft") if more > 0 else None,
    ]


def _facts(report: NeedleReport) -> list[tuple[str, str]]:
    asked = report.settings
    needles = len(report.reads[0].trials)
    return [
        ("model", f"{asked['model']}, method {asked['method']}"),
        ("device", f"{asked['device']}, {asked['dtype']}"),
        ("needles", f"{asked['variant']}, seed {asked['seed']}"),
        ("texts", f"{len(report.reads):,} of {asked['prose']}, with {needles:,} needles each"),
        ("lengths", ", ".join(f"{length:,}" for length in asked["lengths"])),
        ("gathered by", str(asked["gather_by"] or "the usual source")),
        ("reading", f"{report.tokens_per_s:,.0f} tokens/s"),
    ]
