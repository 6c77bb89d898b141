"""What `niah` prints: a heat map, counts by kind, and wrong answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.cli import grids, render
from longctx.cli.text import duration

if TYPE_CHECKING:
    from longctx.core.measure.niah.report import NeedleReport, Trial

SHOWN = 10  # wrong answers that are listed


def columns(lengths: Sequence[int]) -> list[str]:
    """Lengths for people."""
    from longctx.core.common.units import show_tokens

    return [show_tokens(length) for length in lengths]


def rows(depths: Sequence[float]) -> list[str]:
    """Depths for people."""
    return [f"{depth:.0%}" for depth in depths]


def show(report: "NeedleReport", out: Path | None) -> None:
    """Prints a report.

    Args:
        report: the results.
        out: folder with the written results; None: none were written.
    """
    lengths, depths = report.settings["lengths"], report.settings["depths"]
    grid = grids.Grid("depth", columns(lengths), rows(depths))
    for trial in report.asked:
        grid.add(depths.index(trial.depth), lengths.index(trial.length), trial.answered)
    grids.heat_map(grid)
    render.line("")
    kinds = report.by_kind()
    cells = [_kind_cells(kind, trials) for kind, trials in kinds.items()]
    if len(kinds) > 1:
        cells.append(_kind_cells("all", report.asked))
    headers = ("kind", "asked", "answered", "gathered", "rate", "95% interval")
    render.table(headers, cells, right=headers[1:])
    _show_missed([trial for trial in report.asked if not trial.answered])
    render.line("")
    render.facts(_facts(report, out))


def _kind_cells(kind: str, trials: "list[Trial]") -> tuple[str, ...]:
    from longctx.core.measure.niah.report import counts

    told = counts(trials)
    low, high = told["interval"]
    numbers = (str(told[name]) for name in ("asked", "answered", "gathered"))
    return (kind, *numbers, f"{told['rate']:.1%}", f"{low:.1%} to {high:.1%}")


def _show_missed(missed: "list[Trial]") -> None:
    if not missed:
        return
    render.line("\nnot answered:")
    headers = ("tokens", "depth", "question", "expected", "answer", "gathered")
    cells = (
        (
            f"{trial.length:,}",
            f"{trial.depth:.0%}",
            trial.question,
            trial.expected,
            trial.answer,
            "yes" if trial.gathered else "NO",
        )
        for trial in missed[:SHOWN]
    )
    render.table(headers, cells, right=("tokens", "depth"))
    if len(missed) > SHOWN:
        render.line(f"and {len(missed) - SHOWN} more (--json has all)")


def _facts(report: "NeedleReport", out: Path | None) -> list[tuple[str, str]]:
    from longctx.core.measure.niah.report import NOTE

    asked, reads, needles = report.settings, report.reads, len(report.reads[0].trials)
    reading = duration(sum(read.reading_s for read in reads))
    asking = duration(sum(read.asking_s for read in reads))
    how = f"read once for its {needles} needles" if needles > 1 else "read for its one needle alone"
    lengths = ", ".join(f"{length:,}" for length in asked["lengths"])
    ran = f"{asked['variant']} needles, model {asked['model']}, method {asked['method']}"
    verdict = "passed" if report.passed else "NOT passed"
    return [
        ("result", f"{report.rate:.1%} answered, {asked['bar']:.1%} wanted: {verdict}"),
        ("tested", NOTE),
        ("haystacks", f"{len(reads)} of {asked['prose']}, each {how}"),
        ("lengths", f"{lengths} tokens"),
        ("time", f"reading {reading} ({report.tokens_per_s:,.0f} tokens/s), asking {asking}"),
        ("run", f"{ran}, seed {asked['seed']}"),
        *([("written", str(out))] if out else []),
    ]
