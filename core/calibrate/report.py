"""What a calibration found: as JSON, as Markdown, and what a profile takes of it. Values alone."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longctx.core.calibrate.choosing import Head, Row
from longctx.core.calibrate.copying import RetrievalHead
from longctx.core.calibrate.ranks import KINDS
from longctx.core.calibrate.tasks import TASKS

SCHEMA_VERSION = 1
BEST = 3  # of each kind, as in table 1 of the REFORM paper
SHOWN = 10  # heads of each task, and of the copy scores


@dataclass(frozen=True)
class Calibration:
    """What a run found.

    Attributes:
        model, device, dtype: what was run, and where.
        length, samples, seed: of the ranked samples; `samples` of each task.
        rows: every head in every task, best first.
        heads: that REFORM takes.
        copying: every query head, best first.
        needles, answered: how many were asked for copying, and how many answers had the value.
        retrieval_heads: that Ltri-LLM takes: the best of each layer, above the threshold.
        spans: fields of `SpanFit`, by layer.
        heads_stay: no retrieval head was found, and those of the profile before stay in it.
        profile: the file that was written.
        folder: where the tables are.
        seconds: of this run; less than of all where an earlier one was gone on with.
    """

    model: str
    device: str
    dtype: str
    length: int
    samples: int
    seed: int
    rows: Sequence[Row]
    heads: Sequence[Head]
    copying: Sequence[RetrievalHead]
    needles: int
    answered: int
    retrieval_heads: Sequence[RetrievalHead]
    spans: dict[str, Any]
    heads_stay: bool
    profile: Path
    folder: Path
    seconds: float

    def of_task(self, task: str, kind: str | None = None) -> list[Row]:
        """Rows of a task, best first; None: of all kinds."""
        return [row for row in self.rows if row.task == task and kind in (None, row.kind)]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `calibrate`."""
        lists = {"rows": self.rows, "copying": self.copying}
        lists["retrieval_heads"] = self.retrieval_heads
        return {
            "schema_version": SCHEMA_VERSION,
            **{key: value for key, value in vars(self).items() if key not in lists},
            "heads": [list(head) for head in self.heads],
            **{name: [asdict(each) for each in listed] for name, listed in lists.items()},
            "profile": str(self.profile),
            "folder": str(self.folder),
            "seconds": round(self.seconds, 1),
        }


def as_markdown(found: Calibration) -> str:
    """Tables for people: the best heads of each task and kind, and of copying; and what is taken.

    The JSON file has all of them.
    """
    return "\n".join(_lines(found))


def _lines(found: Calibration) -> Iterator[str]:
    yield f"# Heads of {found.model}"
    yield ""
    yield f"{found.samples} samples a task, {found.length:,} tokens each, seed {found.seed}."
    yield f"REFORM's heads: {', '.join(named(*head) for head in found.heads)}."
    for task in TASKS:
        yield from ("", f"## Mean normalised rank, {task} (lower is better)", "")
        best = found.of_task(task)[:SHOWN]
        others = [row for kind in KINDS for row in found.of_task(task, kind)[:BEST]]
        shown = [*best, *(row for row in others if row not in best)]
        yield from _table(("layer", "kind", "head", "MNR", "error"), map(rank_cells, shown))
    yield from ("", "## Copy score (higher is better)", "")
    yield f"{found.answered} of {found.needles} needles were answered."
    yield ""
    yield from _table(
        ("layer", "head", "score", "error"), map(copy_cells, found.copying[: 2 * SHOWN])
    )
    yield from ("", "## Spans", "")
    yield from _table(("layer", "theta", "phi", "lambda", "F1"), span_cells(found.spans))
    yield ""


def named(layer: int, kind: str, head: int) -> str:
    """A head as a profile has it."""
    return f"[{layer}, {kind}, {head}]"


def rank_cells(row: Row) -> tuple[str, ...]:
    """A row of ranks: layer, kind, head, mean, standard error."""
    return (f"{row.layer}", row.kind, f"{row.head}", f"{row.mean:.4f}", _fixed(row.error, 4))


def copy_cells(each: RetrievalHead) -> tuple[str, ...]:
    """A row of copy scores: layer, head, score, standard error."""
    return (f"{each.layer}", f"{each.head}", f"{each.score:.3f}", _fixed(each.error, 3))


def span_cells(spans: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each layer: layer, theta, phi, lambda, F1."""
    columns = (spans[name] for name in ("theta", "phi", "lam", "f1"))
    return [
        (f"{layer}", f"{theta:.3f}", f"{phi:.3f}", f"{lam:g}", _fixed(f1, 3))
        for layer, (theta, phi, lam, f1) in enumerate(zip(*columns, strict=True))
    ]


def _table(headers: Sequence[str], rows: Iterator[tuple] | list[tuple]) -> Iterator[str]:
    for cells in (headers, ["---:" for _ in headers], *rows):
        yield f"| {' | '.join(cells)} |"


def _fixed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
