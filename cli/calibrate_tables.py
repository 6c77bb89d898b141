"""What `calibrate` prints: the best heads of each task and of copying, and the chosen ones."""

from typing import TYPE_CHECKING

from longctx.cli import render
from longctx.cli.text import duration

if TYPE_CHECKING:
    from longctx.core.measure.calibrate.report import Calibration

SHOWN = 8  # heads of each task, and of the copy scores


def show(found: "Calibration") -> None:
    """Prints what was found."""
    from longctx.core.measure.calibrate.report import copy_cells, rank_cells, rank_headers
    from longctx.core.measure.calibrate.tasks import TASKS

    headers = rank_headers(found)
    for task in TASKS:
        render.line(f"ranks, {task} (lower is better)")
        render.table(headers, map(rank_cells, found.ranks(task, SHOWN)), right=headers[2:])
        render.line("")
    render.line(f"copy score ({found.answered} of {found.needles} needles were answered)")
    headers = ("layer", "head", "score", "error")
    render.table(headers, map(copy_cells, found.copying[:SHOWN]), right=headers[1:])
    render.line("")
    render.facts(_facts(found))


def _facts(found: "Calibration") -> list[tuple[str, str]]:
    from longctx.core.measure.calibrate.report import TITLES, named

    heads = ", ".join(named(*head) for head in found.heads)
    retrieval = ", ".join(f"[{h.layer}, {h.head}, {h.score:.2f}]" for h in found.retrieval_heads)
    scores = [f1 for f1 in found.spans["f1"] if f1 is not None]
    samples = f"{found.samples} samples a task of {found.length:,} tokens, seed {found.seed}"
    return [
        ("REFORM's heads", f"{heads}, by {TITLES[found.rank_by]}"),
        ("retrieval heads", retrieval or ("none new" if found.heads_stay else "none")),
        ("spans", f"F1 {sum(scores) / len(scores):.2f}, mean of layers" if scores else "none"),
        ("run", f"{found.model} on {found.device} in {found.dtype}, {samples}"),
        ("time", duration(found.seconds)),
        ("profile", str(found.profile)),
        ("tables", str(found.folder)),
    ]
