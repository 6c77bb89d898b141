"""Shared by `ruler` and `babilong`: the choice of tasks, the run with its progress, the table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.cli import progress, render

if TYPE_CHECKING:
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest.job import Progress
    from longctx.core.measure.case import Task
    from longctx.core.measure.eval.evaluation import Evaluation, Watch
    from longctx.core.measure.eval.summary import Cell
    from longctx.core.measure.runner import How


def chosen(
    text: str, made: "Mapping[str, Task]", names: Sequence[str], absent: Mapping[str, str]
) -> "list[Task]":
    """The tasks that a user names, without duplicates.

    Args:
        text: comma-separated names, or `all`.
        made: tasks that can be run.
        names: all names, in order.
        absent: why some of them cannot be run.

    Raises:
        UsageError: an unknown name, or one that cannot be run.
    """
    from longctx.core.common.errors import UsageError

    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if wanted == ["all"]:
        return [made[name] for name in names if name in made]
    for name in wanted or [text]:
        if name not in made:
            why = absent.get(name, "there is no such task")
            raise UsageError(f"cannot run task {name!r}", why, f"Known are: {', '.join(names)}.")
    return [made[name] for name in dict.fromkeys(wanted)]


def evaluate(
    what: "Evaluation",
    left_out: Mapping[str, str],
    setup: "Setup",
    how: "How",
    out: Path | None,
    json: bool,
) -> None:
    """Runs tasks and shows their scores; after Ctrl-C, those of finished samples.

    Args:
        what: tasks, lengths and samples.
        left_out: names of tasks that cannot be made, and why.
        setup: model, method and device.
        how: how to ask.
        out: folder that keeps finished samples; None: none are kept.
        json: print one JSON object.

    Raises:
        LongctxError: as `run`, or the folder holds other files.
        KeyboardInterrupt: Ctrl-C, after the table.
    """
    from longctx.core.engine.setup import prepare
    from longctx.core.measure.eval.evaluation import require_files, run, settings
    from longctx.core.measure.journal import Journal

    for name, why in left_out.items():
        render.note(f"{name} is left out: {why}")
    engine = prepare(setup)
    decides = settings(engine, how, what)
    records: list[dict[str, Any]] = []
    stopped = False
    folder = None if out is None else out.expanduser()
    with Journal(folder, decides) as journal, _watched() as watch:
        require_files(journal, what.files)
        try:
            records.extend(run(what, engine, setup, how, journal, watch))
        except KeyboardInterrupt:
            stopped = True
    if records or not stopped:
        _show(decides, left_out, records, not stopped, json)
    if stopped:
        kept = "Nothing was kept without --out" if out is None else f"Finished samples: {out}"
        render.note(f"{len(records)} samples are finished. {kept}")
        raise KeyboardInterrupt


@contextmanager
def _watched() -> "Iterator[Watch]":
    """Shows which sample is being read, and the progress."""
    from longctx.core.measure.eval.evaluation import Watch

    with ExitStack() as shown:
        bar: list[Any] = []

        def case(name: str, done: int, total: int, kept: int) -> None:
            shown.close()
            what = f"{name}, {done + 1} of {total}"
            progress.step(what, done, total, "documents", kept)
            bar[:] = [shown.enter_context(progress.reading(what))]

        def read(state: "Progress") -> None:
            bar[0](state)

        yield Watch(case, read)


def _show(
    decides: Mapping[str, Any],
    left_out: Mapping[str, str],
    records: list[dict[str, Any]],
    complete: bool,
    json: bool,
) -> None:
    from longctx.core.measure.eval.summary import averages, cells

    found = cells(records)
    means = averages(found)
    lists = {"cells": found, "averages": means}
    values = {
        **decides,
        "complete": complete,
        "left_out": dict(left_out),
        **{name: [asdict(cell) for cell in listed] for name, listed in lists.items()},
        "samples": records,
    }
    if render.result(values, json):
        return
    headers = ("task", "length", "samples", "score", "95% interval", "gathered", "tokens")
    render.table(headers, map(_cells, [*found, *means]), right=headers[1:])
    render.line("")
    method = f"method {decides['method']}, seed {decides['seed']}"
    render.facts([("model", f"{decides['model']}, {method}"), *left_out.items()])


def _cells(cell: "Cell") -> tuple[str, ...]:
    return (
        cell.task or "all tasks",
        f"{cell.length:,}",
        f"{cell.samples}",
        f"{cell.score:.1%}",
        f"{cell.low:.0%} to {cell.high:.0%}",
        "" if cell.gathered is None else f"{cell.gathered:.0%}",
        f"{cell.tokens:,.0f}",
    )
