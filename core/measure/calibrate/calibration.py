"""Runs a calibration: ranks, copy scores, spans. Keeps results so that a stopped run can resume.

Beside the profile NAME.yaml, the folder NAME.calibration has the journal, table.json, table.md and,
heatmap.svg.
"""

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial

from longctx.core import methods
from longctx.core.common.device import dtype_name
from longctx.core.common.telemetry import facts, stage
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine, memory_told, prepare
from longctx.core.measure.calibrate import (
    choosing,
    copying,
    maps,
    profile_file,
    span_search,
    tapping,
    writing,
)
from longctx.core.measure.calibrate.calibration_plan import (
    CalibrationPlan,
    require,
    require_no_less,
)
from longctx.core.measure.calibrate.ranks import layer_ranks
from longctx.core.measure.calibrate.report import Calibration
from longctx.core.measure.calibrate.tasks import (
    TASKS,
    Haystacks,
    Samples,
    TaskSample,
    prose,
    value_tokens,
)
from longctx.core.measure.haystack import Builder
from longctx.core.measure.journal import Journal, Record, Tell
from longctx.core.measure.runner import of_model

_log = logging.getLogger(__name__)

VERSION = 2  # version of the measurements; a journal of another one is not resumed
READER = "h2o"  # the method whose options every model has, with or without a profile
BESIDE = 256  # tokens of the window that prefix, question and answer may take
DIGITS = 7  # digits of a stored rank
WRITTEN = "profile"  # the journal's record of how much was measured for the written profile


def run(setup: Setup, wanted: CalibrationPlan, tell: Tell = lambda *told: None) -> Calibration:
    """Finds a model's heads, and writes its profile and the tables.

    Args:
        setup: the model; its method is ignored.
        wanted: how much is measured, and the profile to write.
        tell: called with the progress.

    Raises:
        UsageError: samples that do not fit the window, an unusable file or folder, or invalid
            options in the model's profile.
        LongctxError: the model does not run, or a file cannot be written.
        KeyboardInterrupt: Ctrl-C; the folder keeps what is finished.
    """
    began = time.monotonic()
    require(wanted)
    engine = prepare(replace(setup, method=READER))
    text = "a calibration reads in ways of its own: method %s and the decode policy stand for none"
    facts(_log, text, READER, method=None, decode=None)
    shape = _shape(engine)
    builder = Builder(engine.files.tokenizer, prose())
    samples = Samples(builder, wanted.length, wanted.seed)
    haystacks = Haystacks(builder, _room(engine, wanted), wanted.seed)
    next(maps.haystacks(engine, 1, wanted.seed, shape.first, shape.block))  # refuses wrong sizes
    with (
        Journal(wanted.folder, _settings(engine, wanted)) as journal,
        memory_told(engine, "Give a smaller --length."),
    ):
        require_no_less(wanted, journal.get(WRITTEN))
        with stage(_log, "ranks", "heads ranked"):
            ranks = _ranks(engine, journal, samples, wanted.amounts.samples, tell)
        with stage(_log, "copying", "copy scores measured"):
            copied = _copied(engine, journal, haystacks, wanted.amounts.haystacks, tell)
        with stage(_log, "spans", "spans searched for"):
            spans = _spans(engine, journal, wanted, shape, tell)
        found = _found(engine, wanted, ranks, copied, spans, time.monotonic() - began)
        writing.write(engine, found)
        journal.put(WRITTEN, asdict(wanted.amounts))
    return found


def _room(engine: Engine, wanted: CalibrationPlan) -> int:
    """Tokens that a haystack read with full attention may have."""
    return max(1, min(wanted.length, (engine.window - BESIDE) // 100 * 100))


def _settings(engine: Engine, wanted: CalibrationPlan) -> Record:
    """What results depend on; later runs may measure more."""
    return {
        "calibration": VERSION,
        **of_model(engine),
        "length": wanted.length,
        "seed": wanted.seed,
        "reading": asdict(tapping.options(engine.window)),
        "prose": hashlib.sha256(prose().text.encode()).hexdigest(),
    }


def _shape(engine: Engine) -> span_search.Shape:
    """Options of spans, from the profile or else by rule.

    Raises:
        UsageError: the profile has invalid options.
    """
    ltri = profile_file.require_fit(engine).get(profile_file.LTRI)
    if ltri is None:
        usual = profile_file.usual(engine)[profile_file.LTRI]
        ltri = methods.load(profile_file.LTRI).Options(**usual)
    names = [each.name for each in fields(span_search.Shape)]
    return span_search.Shape(**{name: getattr(ltri, name) for name in names})


# --- measuring ----------------------------------------------------------------------------------


def _ranks(
    engine: Engine, journal: Journal, samples: Samples, count: int, tell: Tell
) -> dict[str, list[choosing.Ranks]]:
    """The ranks of every sample, by task; tasks alternate."""
    pieces = {
        f"{task}/{number}": partial(_ranked, engine, samples, task, number)
        for number in range(count)
        for task in TASKS
    }
    found = journal.complete("ranks of heads", "samples", pieces, tell)
    return {
        task: [record["ranks"] for record in found[number :: len(TASKS)]]
        for number, task in enumerate(TASKS)
    }


def _ranked(engine: Engine, samples: Samples, task: str, number: int) -> Record:
    return {"ranks": _rank(engine, samples.make(task, number))}


def _rank(engine: Engine, sample: TaskSample) -> list[dict[str, dict[str, list[float]]]]:
    """Ranks by layer, measure, kind and head."""
    sizes = tapping.options(engine.window)
    read = tapping.read(engine.decoder, sizes, engine.prompt, sample.ids, sample.needle.question)
    return [
        {measure: _rounded(ranks) for measure, ranks in layer_ranks(states, sample.gold).items()}
        for states in read
    ]


def _rounded(ranks: dict[str, list[float]]) -> dict[str, list[float]]:
    return {kind: [round(rank, DIGITS) for rank in heads] for kind, heads in ranks.items()}


def _copied(
    engine: Engine, journal: Journal, haystacks: Haystacks, count: int, tell: Tell
) -> list[Record]:
    """The result of every needle."""
    pieces = {
        f"copying/{number}": partial(_copy, engine, haystacks, number) for number in range(count)
    }
    found = journal.complete("copy scores", "haystacks", pieces, tell)
    return [needle for record in found for needle in record["needles"]]


def _copy(engine: Engine, haystacks: Haystacks, number: int) -> Record:
    laid = haystacks.make(number)
    asked = [(query.question, value_tokens(laid, query)) for query in laid.case.queries]
    ends, tokenizer = engine.files.eos_ids(), engine.files.tokenizer
    found = copying.copy_scores(engine.decoder, engine.prompt, laid.haystack.ids, asked, ends)
    needles = [
        {
            "value": query.answers[0],
            "answer": tokenizer.decode(copied.answer, skip_special_tokens=True),
            "scores": [[round(score, 4) for score in row] for row in copied.scores.tolist()],
        }
        for query, copied in zip(laid.case.queries, found, strict=True)
    ]
    return {"needles": needles}


def _spans(
    engine: Engine, journal: Journal, wanted: CalibrationPlan, shape: span_search.Shape, tell: Tell
) -> Record:
    """The fields of `LayerFit`, each over all layers."""
    needles, trials = wanted.amounts.needles, wanted.amounts.trials

    def on_progress(done: int, total: int) -> None:
        tell("spans", done, total, "steps", 0)

    def search() -> Record:
        return span_search.search(engine, shape, needles, trials, wanted.seed, on_progress)

    return journal.fetch(f"spans/{needles}/{trials}", search)


# --- what was found -------------------------------------------------------------------------------


def _found(
    engine: Engine,
    wanted: CalibrationPlan,
    ranks: dict[str, list[choosing.Ranks]],
    copied: Sequence[Record],
    spans: Record,
    seconds: float,
) -> Calibration:
    rows, layers = choosing.table(ranks), engine.decoder.layers
    heads = copying.score_table([needle["scores"] for needle in copied])
    selecting = {layer.index for layer in layers if layer.window is None}
    retrieval = copying.best_of_layers(heads, selecting)
    before = engine.profile.methods.get(profile_file.LTRI) or {}
    return Calibration(
        model=engine.files.name,
        device=engine.device,
        dtype=dtype_name(engine.dtype),
        length=wanted.length,
        samples=wanted.amounts.samples,
        seed=wanted.seed,
        rows=rows,
        rank_by=wanted.rank_by,
        heads=choosing.choose(rows, len(layers), wanted.rank_by),
        copying=heads,
        needles=len(copied),
        answered=sum(n["value"].casefold() in n["answer"].casefold() for n in copied),
        retrieval_heads=retrieval,
        spans=spans,
        heads_stay=not retrieval and bool(before.get("heads")),
        profile=wanted.profile,
        folder=wanted.folder,
        seconds=seconds,
    )
