"""Reads haystacks and asks for their needles, with the same calls as for any other document.

Every haystack is ingested into a library that is deleted afterwards. A folder, if given, keeps the
results of finished haystacks, which are not read again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from longctx.core import methods
from longctx.core.ask.session import Session
from longctx.core.common.device import dtype_name
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.outputs import Output
from longctx.core.common.units import show_tokens
from longctx.core.contracts.method import Recallable
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, prepare
from longctx.core.engine.staying import weights_stay
from longctx.core.ingest.ingested import Ingested
from longctx.core.ingest.job import Progress
from longctx.core.measure import figures
from longctx.core.measure.case import CaseQuestion
from longctx.core.measure.haystack import Builder, depths
from longctx.core.measure.journal import Journal, Record
from longctx.core.measure.niah.laying import Laid, NeedleChoice, Plan, lay
from longctx.core.measure.niah.report import HaystackRead, NeedleReport, Trial
from longctx.core.measure.niah.scoring import is_right
from longctx.core.measure.niah.variants import Variant, variant
from longctx.core.measure.prose import Prose, read_prose
from longctx.core.measure.runner import How, ask, of_asking, of_model, opened
from longctx.core.retrieve.gather_by import METHOD

REPORT, HEAT_MAP = "report.json", "heatmap.svg"
SAMPLE = "harbour-book"  # the prose that comes with the package


@dataclass(frozen=True)
class NeedleTest:
    """What is tested.

    Attributes:
        lengths: tokens of haystacks, needles included.
        depths: number of depths, evenly spaced.
        variant: kinds of needles; None: pass keys and numbers.
        needles: multiplies the variant's number of needles at a depth.
        trials: haystacks of each length.
        strict: each needle has its own haystack.
        seed: with length and trial, the seed of values, cities and the order of the prose.
        haystack: file or folder of the prose; None: the package's own.
        bar: share of right answers needed to pass; None: the variant's.
        out: folder for finished results and the report; None: nothing is kept.
        how: how questions are asked; without `gather`, a method that attends to all it kept
            reports all of that.
    """

    lengths: tuple[int, ...] = (16_000,)
    depths: int = 11
    variant: str | None = None
    needles: int = 1
    trials: int = 1
    strict: bool = False
    seed: int = 0
    haystack: Path | None = None
    bar: float | None = None
    out: Path | None = None
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class NeedleWatch:
    """Callbacks of a run.

    Attributes:
        on_plans: called with all haystacks, before the first.
        on_progress: called while a haystack is read.
        on_trial: called with a haystack, how many of its questions were asked, the last result,
            and whether that comes from an earlier run.
    """

    on_plans: Callable[[Sequence[Plan]], None] = lambda plans: None
    on_progress: Callable[[Plan, Progress], None] = lambda plan, progress: None
    on_trial: Callable[[Plan, int, Trial, bool], None] = lambda plan, number, trial, kept: None


def run(setup: Setup, wanted: NeedleTest, watch: NeedleWatch | None = None) -> NeedleReport:
    """Hides needles at evenly spaced depths of haystacks, and asks for them.

    The text and the state of a haystack are deleted once its questions are asked, also on errors.

    Raises:
        UsageError: too short a length for the needles, more needles than can be told apart, prose
            that cannot be read, a wrong setup, or a folder of another run; all before the first
            haystack is read.
        LongctxError: no exact length with this tokenizer, or no room for the model or the state.
    """
    watch, engine = watch or NeedleWatch(), prepare(setup)
    chosen, makers = variant(wanted.variant)
    needles = NeedleChoice(
        chosen, makers, wanted.depths, wanted.needles, wanted.strict, wanted.seed
    )
    builder = Builder(engine.files.tokenizer, read_prose(wanted.haystack))
    plans = _plans(wanted, needles, builder)
    with Journal(wanted.out, _settings(engine, wanted, builder.prose)) as journal:
        watch.on_plans(plans)
        with weights_stay():
            reads = tuple(_finished(journal, builder, plan, setup, wanted, watch) for plan in plans)
        report = NeedleReport(_ran(engine, setup, wanted, chosen), reads)
        if wanted.out is not None:
            _write(wanted.out, report)
    return report


def _ran(engine: Engine, setup: Setup, wanted: NeedleTest, chosen: Variant) -> Record:
    """The settings of a report."""
    return {
        "variant": chosen.name,
        "lengths": wanted.lengths,
        "depths": tuple(depths(wanted.depths)),
        **{key: getattr(wanted, key) for key in ("needles", "trials", "strict", "seed")},
        "bar": chosen.bar if wanted.bar is None else wanted.bar,
        "prose": str(wanted.haystack or SAMPLE),
        "model": engine.files.name,
        "method": engine.method_name,
        "device": engine.device,
        "dtype": dtype_name(engine.dtype),
        "gather": wanted.how.gather,
        "gather_by": wanted.how.gather_by,
        "decode": wanted.how.decode or setup.decode,
    }


def _plans(wanted: NeedleTest, needles: NeedleChoice, builder: Builder) -> list[Plan]:
    if wanted.trials < 1:
        raise UsageError(f"cannot run {wanted.trials} trials", "", "Give --trials 1 or more.")
    if len({*wanted.lengths}) < len(wanted.lengths) or not wanted.lengths:
        raise UsageError(
            f"cannot use the lengths {wanted.lengths}", "each must be there once", "Name others."
        )
    return [
        plan
        for length in wanted.lengths
        for trial in range(wanted.trials)
        for plan in needles.plans(builder, length, trial)
    ]


def _settings(engine: Engine, wanted: NeedleTest, prose: Prose) -> Record:
    """What results depend on; later runs may add lengths and trials."""
    return {
        "evaluation": "niah",
        **of_model(engine),
        **of_asking(engine, wanted.how),
        "variant": wanted.variant,
        "depths": wanted.depths,
        "needles": wanted.needles,
        "strict": wanted.strict,
        "seed": wanted.seed,
        "prose": hashlib.sha256(prose.text.encode()).hexdigest(),
    }


def _finished(
    journal: Journal,
    builder: Builder,
    plan: Plan,
    setup: Setup,
    wanted: NeedleTest,
    watch: NeedleWatch,
) -> HaystackRead:
    """The result of a haystack, from this run or an earlier one."""
    kept = journal.get(plan.name) is not None
    make = partial(_read, builder, plan, setup, wanted.how, watch)
    read = HaystackRead.of(journal.fetch(plan.name, make))
    for number, trial in enumerate(read.trials if kept else (), start=1):
        watch.on_trial(plan, number, trial, True)
    return read


def _read(builder: Builder, plan: Plan, setup: Setup, how: How, watch: NeedleWatch) -> Record:
    laid = lay(builder, plan)
    on_progress = partial(watch.on_progress, laid.plan)
    with opened(laid.case, setup, [how.gather_by], on_progress) as (done, session):
        _require_tokens(done, laid.plan.length)
        started, trials = time.perf_counter(), []
        how = _telling_all(how, session, done.tokens)
        for number in range(len(laid.tokens)):
            trials.append(_ask(session, laid, number, how))
            watch.on_trial(laid.plan, len(trials), trials[-1], False)
        asking = round(time.perf_counter() - started, 3)
    return asdict(
        HaystackRead(plan.name, done.tokens, round(done.seconds, 3), asking, tuple(trials))
    )


def _require_tokens(done: Ingested, length: int) -> None:
    if done.tokens != length:
        raise LongctxError(
            f"read {done.tokens:,} tokens of a haystack of {length:,}",
            "with this tokenizer, reading in pieces gives other tokens than reading at once",
            "Please report this with the name of the model.",
        )


def _telling_all(how: How, session: Session, tokens: int) -> How:
    """For a method that attends to all it kept, `gather` limits only what is reported."""
    recalls = issubclass(methods.load(session.engine.method_name).Method, Recallable)
    if how.gather is not None or how.gather_by not in (None, METHOD) or not recalls:
        return how
    return replace(how, gather=tokens)


def _ask(session: Session, laid: Laid, number: int, how: How) -> Trial:
    query: CaseQuestion = laid.case.queries[number]
    asked = ask(session, query, how)
    (expected,) = query.answers
    return Trial(
        kind=query.kind,
        length=laid.plan.length,
        trial=laid.plan.trial,
        depth=laid.plan.hidden[number].depth,
        token=laid.tokens[number],
        question=query.question,
        expected=expected,
        answer=asked.answer,
        answered=is_right(expected, asked.answer),
        gathered=asked.gathered == 1,
        tokens=asked.tokens,
        timings=asked.timings,
    )


def _write(folder: Path, report: NeedleReport) -> None:
    text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
    Output(folder / REPORT).write(text)
    ran = report.settings
    figures.heat_map(
        folder / HEAT_MAP,
        report.shares(),
        [show_tokens(length) for length in ran["lengths"]],
        [f"{depth:.0%}" for depth in ran["depths"]],
        f"{ran['variant']}: {report.rate:.1%} answered ({ran['model']}, {ran['method']})\n"
        "plainly worded needles",
        ("tokens of the haystack", "depth of the needle"),
    )
