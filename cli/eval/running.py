"""What evaluations of tasks share: their options, the run with its progress, the table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longctx.cli import progress, render
from longctx.cli.run import Form, current
from longctx.cli.text import one_line

if TYPE_CHECKING:
    from longctx.core.engine.setup import Setup
    from longctx.core.ingest.ingest import Progress
    from longctx.core.measure.case import Task
    from longctx.core.measure.eval.run import Telling
    from longctx.core.measure.eval.summary import Cell
    from longctx.core.measure.journal import Journal
    from longctx.core.measure.runner import How

Lengths = Annotated[
    str,
    typer.Option(
        "--lengths",
        "--length",
        metavar="L,...",
        show_default=False,
        help="Tokens of a document, at most: 4000, 4k (= 4,000), 4K (= 4,096), 1M (= 1,048,576), "
        "or several with commas; by default 4k.",
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        "--samples",
        metavar="N",
        min=1,
        show_default=False,
        help="Documents for each task and length; by default 10.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        show_default=False,
        help="Decides all documents and questions; by default 0.",
    ),
]
Haystack = Annotated[
    Path | None,
    typer.Option(
        "--haystack",
        metavar="FILE|DIR",
        show_default=False,
        help="Prose to fill documents with: a text file, or a folder of .txt, .md and .rst files; "
        "by default the book that comes with longctx, over and over.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="Folder to keep finished samples in; the same command goes on with what is there. By "
        "default they are only reported.",
    ),
]


@dataclass(frozen=True)
class Size:
    """How much is asked, as the user gave it."""

    lengths: str
    samples: int
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """What is run.

    Attributes:
        suite: its name.
        tasks: in this order.
        left_out: names of tasks that cannot be made, and why.
        prose: all that documents are filled with.
        files: what else they are made of, by option or name.
    """

    suite: str
    tasks: "Sequence[Task]"
    left_out: Mapping[str, str]
    prose: str
    files: Mapping[str, Path]


def chosen(
    text: str, made: "Mapping[str, Task]", names: Sequence[str], absent: Mapping[str, str]
) -> "list[Task]":
    """The tasks that a user names, each once.

    Args:
        text: names with commas, or `all`.
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
    what: Evaluation, size: Size, setup: "Setup", how: "How", out: Path | None, json: bool
) -> None:
    """Runs tasks and shows their scores; after Ctrl-C those of what was finished.

    Raises:
        LongctxError: as `run` does, or the folder holds something else.
        KeyboardInterrupt: Ctrl-C, after the table.
    """
    from longctx.core.common.units import parse_tokens
    from longctx.core.engine.setup import prepare
    from longctx.core.measure.eval.run import Wanted, run, settings
    from longctx.core.measure.journal import Journal

    lengths = [parse_tokens(length.strip()) for length in size.lengths.split(",")]
    wanted = Wanted(what.tasks, lengths, size.samples, size.seed)
    for name, why in what.left_out.items():
        render.note(f"{name} is left out: {why}")
    engine = prepare(setup)
    prose = sha256(what.prose.encode()).hexdigest()
    decides = settings(engine, how, wanted, suite=what.suite, prose=prose)
    records: list[dict[str, Any]] = []
    stopped = False
    folder = None if out is None else out.expanduser()
    with Journal(folder, decides) as journal, _telling() as telling:
        _require_files(journal, what.files)
        try:
            records.extend(run(wanted, engine, setup, how, journal, telling))
        except KeyboardInterrupt:
            stopped = True
    if records or not stopped:
        _show(what, decides, records, not stopped, json)
    if stopped:
        kept = "Nothing was kept without --out" if out is None else f"Finished samples: {out}"
        render.note(f"{len(records)} samples are finished. {kept}")
        raise KeyboardInterrupt


def _require_files(journal: "Journal", files: Mapping[str, Path]) -> None:
    """Refuses files of other content than an earlier run in the same folder had under that name."""
    from longctx.core.common import file_limits
    from longctx.core.common.errors import UsageError
    from longctx.core.common.regular_files import read_regular

    for name, path in files.items():
        data = read_regular(path.expanduser(), file_limits.DATA)
        record = {"digest": sha256(data).hexdigest()}
        if journal.get(f"file {name}") not in (None, record):
            raise UsageError(
                f"cannot go on with '{path}'",
                f"{name} had other content when the run began",
                "Give the same file, or another --out.",
            )
        journal.put(f"file {name}", record)


@contextmanager
def _telling() -> "Iterator[Telling]":
    """Shows which sample is read, and how far."""
    from longctx.core.measure.eval.run import Telling

    with ExitStack() as shown:
        bar: list[Any] = []
        kept: list[int] = []

        def case(name: str, done: int, total: int) -> None:
            shown.close()
            what = f"{name}, {done + 1} of {total}"
            _begins(what, done, total, kept[0])
            bar[:] = [shown.enter_context(progress.reading(what))]

        def read(state: "Progress") -> None:
            bar[0](state)

        yield Telling(case, read, kept.append)


def _begins(what: str, done: int, total: int, kept: int) -> None:
    """Says that a document begins, after so many, of which some were kept from an earlier run."""
    if current().form is not Form.JSON:
        progress.plain(what)
        return
    with progress.lines(one_line(what), "documents") as told:
        told.tell(total, kept, done, round(1000 * current().seconds))


def _show(
    what: Evaluation,
    decides: Mapping[str, Any],
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
        "left_out": dict(what.left_out),
        **{name: [asdict(cell) for cell in listed] for name, listed in lists.items()},
        "samples": records,
    }
    if render.result(values, json):
        return
    headers = ("task", "length", "samples", "score", "95% interval", "gathered", "tokens")
    render.table(headers, map(_cells, [*found, *means]), right=headers[1:])
    render.line("")
    method = f"method {decides['method']}, seed {decides['seed']}"
    render.facts([("model", f"{decides['model']}, {method}"), *what.left_out.items()])


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
