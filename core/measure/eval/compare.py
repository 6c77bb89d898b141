"""Methods side by side: the same tasks, lengths and questions for each, in one table.

For every method and length, a separate process reads each case once and asks it in every way: with
every gather source and decode policy. Results are kept at once, so that a stopped run can resume.
The first row is a ceiling: full attention on the same tasks, within the window.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.decode import policies
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.measure.eval import tasks
from longctx.core.measure.eval.compare_job import AskSettings, CaseJob, CompareJob, Message
from longctx.core.measure.eval.compare_process import COMMAND, Died, messages
from longctx.core.measure.eval.compare_rows import Row, make_row
from longctx.core.measure.journal import Journal, Record
from longctx.core.measure.runner import of_model
from longctx.core.retrieve.gather_by import METHOD, check

SCHEMA_VERSION = 1
CEILING = "full"  # the method that drops nothing
BESIDE = 384  # tokens of the window that prefix, question and template may take


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        methods: reading methods.
        decode: decode policies, as `--decode` takes them.
        lengths: tokens of the texts.
        tasks: their names.
        gather_by: gather sources.
        samples: questions per task and length.
        seed: seed of the cases.
        in_window: tokens of the ceiling's texts; 0: as many as fit the window.
    """

    methods: tuple[str, ...]
    decode: tuple[str, ...]
    lengths: tuple[int, ...]
    tasks: tuple[str, ...]
    gather_by: tuple[str, ...] = (METHOD,)
    samples: int = 11
    seed: int = 0
    in_window: int = 0


@dataclass(frozen=True)
class MethodRun:
    """A method that reads texts of one length, and the ways to ask them."""

    method: str
    length: int
    ways: tuple[AskSettings, ...]
    is_ceiling: bool = False

    @property
    def name(self) -> str:
        """Unique in a comparison."""
        return f"{self.method}/{self.length}"


@dataclass(frozen=True)
class ComparisonReport:
    """What a comparison found.

    Attributes:
        settings: options and model.
        rows: the ceiling first, then sorted by method, way and length.
    """

    settings: Record
    rows: list[Row]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `eval compare`."""
        return {"schema_version": SCHEMA_VERSION, "eval": "compare", **asdict(self)}


def run(
    setup: Setup,
    wanted: Comparison,
    folder: Path | None = None,
    on_run: Callable[[MethodRun], None] = lambda run: None,
    on_message: Callable[[Message], None] = lambda message: None,
    command: Sequence[str] = COMMAND,
) -> ComparisonReport:
    """Reads and asks what no earlier run finished, and makes the table.

    Args:
        setup: model, profile and device; its method is ignored.
        wanted: what is compared.
        folder: where results are kept, so that a stopped run can resume; None: nowhere.
        on_run: called before a method reads texts of a length.
        on_message: called with the messages of its process; see `compare_job.py`.
        command: the program that runs a job.

    Raises:
        UsageError: an unknown method, policy, task or model, too short a length for a task, or a
            folder of another run; before any work.
        LongctxError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C; the other process is ended too.
    """
    engine = prepare(replace(setup, method=CEILING))
    wanted = _checked(setup, wanted, engine)
    settings = _settings(engine, wanted)
    failures: dict[str, str] = {}
    with Journal(folder, settings) as journal:
        runs = [*_runs(wanted)]
        for one in runs:
            if job := _job(setup, wanted, one, journal):
                on_run(one)
                failures[one.name] = _done(job, one, journal, on_message, command)
        rows = [
            _row(wanted, one, way, journal, failures.get(one.name, ""))
            for one in runs
            for way in one.ways
        ]
    return ComparisonReport({**settings, **asdict(wanted)}, _in_order(rows))


def _checked(setup: Setup, wanted: Comparison, engine: Engine) -> Comparison:
    """The comparison without duplicates and with the ceiling's length, if it is possible."""
    lists = ("methods", "decode", "lengths", "tasks", "gather_by")
    wanted = replace(wanted, **{key: tuple(dict.fromkeys(getattr(wanted, key))) for key in lists})
    for key in lists:
        if not getattr(wanted, key):
            option = f"--{key.replace('_', '-')}"
            raise UsageError("nothing to compare", f"{option} names nothing", "Name one or more.")
    if wanted.samples < 1:
        raise UsageError(f"cannot use {wanted.samples} samples", "", "Give --samples 1 or more.")
    for method in wanted.methods:
        methods.load(method)
        prepare(replace(setup, method=method))
    for name in wanted.gather_by:
        check(name)
    for policy in wanted.decode:
        policies.choose(policy, engine.profile.decoding)
    found = [tasks.find(name) for name in wanted.tasks]
    room = engine.window - BESIDE - max(task.max_new_tokens for task in found)
    wanted = replace(wanted, in_window=wanted.in_window or room)
    if not 1 <= wanted.in_window < engine.window:
        raise UsageError(
            f"cannot measure a ceiling at {wanted.in_window:,} tokens",
            f"the model's window is {engine.window:,} tokens, for a text, its question and answer",
            "Give another --in-window.",
        )
    for task in found:  # a task refuses too short a length before its first case
        next(task.make(engine.files.tokenizer, min(wanted.lengths), wanted.samples, wanted.seed))
        next(task.make(engine.files.tokenizer, wanted.in_window, wanted.samples, wanted.seed))
    return wanted


def _settings(engine: Engine, wanted: Comparison) -> Record:
    """What results depend on; later runs may change methods, lengths, tasks and ways."""
    return {
        "eval": "compare",
        **of_model(engine),
        "samples": wanted.samples,
        "seed": wanted.seed,
    }


def _runs(wanted: Comparison) -> Iterator[MethodRun]:
    """The ceiling, then the short texts of all methods before the long ones."""
    yield MethodRun(
        CEILING, wanted.in_window, (AskSettings(METHOD, policies.USUALLY),), is_ceiling=True
    )
    ways = tuple(AskSettings(*pair) for pair in product(wanted.gather_by, wanted.decode))
    for length, method in product(sorted(wanted.lengths), wanted.methods):
        yield MethodRun(method, length, ways)


def _job(setup: Setup, wanted: Comparison, one: MethodRun, journal: Journal) -> CompareJob | None:
    """A job for the missing results; None if nothing is missing."""
    pieces = []
    for task, sample in _cases(wanted):
        names = {way: _sample_name(one, way, task, sample) for way in one.ways}
        ways = tuple(
            way
            for way, name in names.items()
            if journal.get(name) is None and journal.get(_unfit_name(one, way, task)) is None
        )
        pieces += [CaseJob(task, sample, ways)] if ways else []
    method = replace(setup, method=one.method)
    return (
        CompareJob(method, one.length, wanted.samples, wanted.seed, tuple(pieces))
        if pieces
        else None
    )


def _done(
    job: CompareJob,
    one: MethodRun,
    journal: Journal,
    on_message: Callable[[Message], None],
    command: Sequence[str],
) -> str:
    """Runs a job and keeps its results.

    Returns:
        Why it ended early; empty if it did not.
    """
    failed = ""
    try:
        with closing(messages(job.to_json(), command)) as told:  # Ctrl-C anywhere ends the process
            for message in told:
                failed = _kept(message, one, journal) or failed
                on_message(message)
    except Died as error:
        return failed or str(error)
    return failed


def _kept(message: Message, one: MethodRun, journal: Journal) -> str:
    """Keeps the result in a message; returns why the job failed, if the message says so."""
    if sample := message.get("sample"):
        way = AskSettings(sample["gather_by"], sample["decode"])
        journal.put(_sample_name(one, way, sample["task"], sample["sample"]), sample)
    elif unfit := message.get("unfit"):
        way = AskSettings(unfit["gather_by"], unfit["decode"])
        journal.put(_unfit_name(one, way, unfit["task"]), unfit)
    return message.get("failed", "")


def _cases(wanted: Comparison) -> Iterator[tuple[str, int]]:
    for task in wanted.tasks:
        yield from ((task, number) for number in range(tasks.find(task).cases(wanted.samples)))


def _sample_name(one: MethodRun, way: AskSettings, task: str, sample: int) -> str:
    return f"{one.name}/{way.gather_by}/{way.decode}/{task}/{sample}"


def _unfit_name(one: MethodRun, way: AskSettings, task: str) -> str:
    return f"{one.name}/{way.gather_by}/{way.decode}/{task}"


def _row(
    wanted: Comparison, one: MethodRun, way: AskSettings, journal: Journal, failed: str
) -> Row:
    unfit = {task: journal.get(_unfit_name(one, way, task)) for task in wanted.tasks}
    unfit = {task: record["why"] for task, record in unfit.items() if record is not None}
    names = [_sample_name(one, way, *case) for case in _cases(wanted) if case[0] not in unfit]
    found = [record for name in names if (record := journal.get(name)) is not None]
    complete = len(found) == len(names)
    return make_row(
        ceiling=one.is_ceiling,
        method=one.method,
        gather_by=way.gather_by,
        decode=way.decode,
        length=one.length,
        samples=found,
        not_applicable=_why_unfit(unfit, wanted),
        failed="" if complete else failed or "it ended before all was asked",
    )


def _why_unfit(unfit: dict[str, str], wanted: Comparison) -> str:
    """Why a way does not fit; if it fits some tasks, also which ones it does not."""
    whys = list(dict.fromkeys(unfit.values()))
    if not whys or len(unfit) == len(wanted.tasks):
        return whys[0] if whys else ""
    return f"{', '.join(unfit)}: {whys[0]}"


def _in_order(rows: list[Row]) -> list[Row]:
    """Rows by method and way in the order given, each with its lengths; the ceiling first."""
    first: dict[tuple[bool, str, str, str], int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row.line, place)
    return sorted(rows, key=lambda row: (first[row.line], row.length))
