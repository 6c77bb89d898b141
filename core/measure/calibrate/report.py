"""Results of a calibration, as JSON and as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longctx.core.measure.calibrate.choosing import Head, HeadRow
from longctx.core.measure.calibrate.copying import RetrievalHead
from longctx.core.measure.calibrate.ranks import KINDS, MAXSIM, MEASURES, MNR
from longctx.core.measure.calibrate.tasks import TASKS
from longctx.core.measure.markdown import table

SCHEMA_VERSION = 2
BEST = 3  # heads per kind, as in table 1 of the REFORM paper
SHOWN = 10  # heads per task, and by copy score
TITLES = {MAXSIM: "rank of windows by MaxSim", MNR: "mean normalised rank"}
HEADERS = {MAXSIM: ("MaxSim", "error"), MNR: ("MNR", "error")}

Ranked = tuple[Head, Sequence[HeadRow]]  # a head, and its results by each measure


@dataclass(frozen=True)
class Calibration:
    """Results of a run.

    Attributes:
        model, device, dtype: what ran, and where.
        length, samples, seed: of the ranked samples; `samples` is per task.
        rows: every head in every task by every measure, best first.
        rank_by: the measure that chose REFORM's heads.
        heads: REFORM's.
        copying: every query head, best first.
        needles, answered: how many needles were asked for, and how many answers had the value.
        retrieval_heads: Ltri-LLM's: the best of each layer, above the threshold.
        spans: the fields of `LayerFit`, each over all layers.
        heads_stay: no retrieval head was found, and the profile keeps its old ones.
        profile: the file that was written.
        folder: the folder of the tables.
        seconds: time of this run, without earlier runs that it resumed.
    """

    model: str
    device: str
    dtype: str
    length: int
    samples: int
    seed: int
    rows: Sequence[HeadRow]
    rank_by: str
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

    def of_task(self, measure: str, task: str, kind: str | None = None) -> list[HeadRow]:
        """Rows of a task by a measure, best first; `kind` None: all kinds."""
        which = measure, task
        own = [row for row in self.rows if (row.measure, row.task) == which]
        return [row for row in own if kind in (None, row.kind)]

    def ranks(self, task: str, shown: int, each: int = 0) -> list[Ranked]:
        """The best heads of a task by `rank_by`, with their ranks by every measure.

        Args:
            task: one of TASKS.
            shown: how many heads.
            each: least number of every kind.
        """
        own = self.of_task(self.rank_by, task)
        kinds = [row for kind in KINDS for row in self.of_task(self.rank_by, task, kind)[:each]]
        rows = {(row.measure, row.named): row for row in self.rows if row.task == task}
        heads = dict.fromkeys(row.named for row in [*own[:shown], *kinds])
        return [(head, [rows[name, head] for name in self.measures]) for head in heads]

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures; the one that chose the heads comes first."""
        return self.rank_by, *(name for name in MEASURES if name != self.rank_by)

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
    """Tables of the best heads by task and kind and by copy score, and of the spans."""
    return "\n".join(_lines(found))


def _lines(found: Calibration) -> Iterator[str]:
    yield f"# Heads of {found.model}"
    yield ""
    yield f"{found.samples} samples a task, {found.length:,} tokens each, seed {found.seed}."
    heads = ", ".join(named(*head) for head in found.heads)
    yield f"REFORM's heads, by {TITLES[found.rank_by]}: {heads}."
    for task in TASKS:
        yield from ("", f"## Ranks, {task} (lower is better)", "")
        headers, ranks = rank_headers(found), found.ranks(task, SHOWN, BEST)
        yield table(headers, map(rank_cells, ranks), right=headers)
    yield from ("", "## Copy score (higher is better)", "")
    yield f"{found.answered} of {found.needles} needles were answered."
    yield ""
    headers = ("layer", "head", "score", "error")
    yield table(headers, map(copy_cells, found.copying[: 2 * SHOWN]), right=headers)
    yield from ("", "## Spans", "")
    headers = ("layer", "theta", "phi", "lambda", "F1")
    yield table(headers, span_cells(found.spans), right=headers)
    yield ""


def named(layer: int, kind: str, head: int) -> str:
    """A head as a profile writes it."""
    return f"[{layer}, {kind}, {head}]"


def rank_headers(found: Calibration) -> tuple[str, ...]:
    """Headers for `rank_cells`; the measure that chose the heads comes first."""
    return ("layer", "kind", "head", *(text for name in found.measures for text in HEADERS[name]))


def rank_cells(ranked: Ranked) -> tuple[str, ...]:
    """Layer, kind, head; then mean and standard error by each measure."""
    (layer, kind, head), rows = ranked
    cells = (text for row in rows for text in (f"{row.mean:.4f}", _fixed(row.error, 4)))
    return (f"{layer}", kind, f"{head}", *cells)


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


def _fixed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
