"""Runs a calibration: ranks, copying, spans; each finished piece is kept, so that a run goes on.

Beside the profile NAME.yaml stands the folder NAME.calibration: the journal, table.json, table.md
and, where matplotlib is installed, heatmap.png.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from longctx.core.calibrate import choosing, copying, profile_file, tapping, writing
from longctx.core.calibrate.needles import Haystack, Haystacks
from longctx.core.calibrate.ranks import layer_ranks
from longctx.core.calibrate.report import Calibration
from longctx.core.calibrate.tasks import TASKS, Sample, Samples, prose
from longctx.core.device import dtype_name
from longctx.core.errors import UsageError
from longctx.core.eval.journal import Journal, Record
from longctx.core.eval.run_settings import of_model
from longctx.core.setup import Engine, Setup, memory_told, prepare

VERSION = 1  # of what is measured; journals of others are not gone on with
READER = "h2o"  # the method whose options every model has, with or without a profile
LENGTH = 8000  # tokens of a document; prefix and question make it about 8,192
BESIDE = 256  # tokens of the window that prefix, question and answer may take
DIGITS = 7  # of a rank that is kept

Told = Callable[[str, int, int, str], None]  # what, done, total, unit


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Attributes:
        samples: ranked, of each task.
        haystacks: for copying, with five needles each.
        needles: for spans.
        trials: of thresholds, for spans.
    """

    samples: int
    haystacks: int
    needles: int
    trials: int


# 500 samples of 8,192 tokens are 62 PFLOP with an 8B model: 10 minutes at 100 TFLOP/s.
FULL, QUICK = Amounts(250, 20, 64, 200), Amounts(8, 4, 16, 40)


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes:
        out: the profile to write, a .yaml file.
        amounts: how much is measured.
        length: tokens of a ranked document.
        seed: decides all samples.
    """

    out: Path
    amounts: Amounts = FULL
    length: int = LENGTH
    seed: int = 0

    @property
    def folder(self) -> Path:
        """Where what is finished is kept."""
        return self.out.with_name(f"{self.out.stem}.calibration")


def run(setup: Setup, wanted: Wanted, tell: Told = lambda *told: None) -> Calibration:
    """Finds a model's heads, and writes its profile and the tables.

    Args:
        setup: the model; its method does not matter.
        wanted: how much, and where to.
        tell: called as it goes on.

    Raises:
        UsageError: samples that do not fit, a file or folder that cannot be used.
        LongctxError: the model does not run, or a file cannot be written.
        KeyboardInterrupt: Ctrl-C; what is finished is in the folder.
    """
    began = time.monotonic()
    _require(wanted)
    engine = prepare(replace(setup, method=READER))
    samples = Samples(engine.files.tokenizer, wanted.length, wanted.seed)
    haystacks = Haystacks(engine.files.tokenizer, _room(engine, wanted), wanted.seed)
    with (
        Journal(wanted.folder, _settings(engine, wanted)) as journal,
        memory_told(engine, "Give a smaller --length."),
    ):
        ranks = _ranks(engine, journal, samples, wanted.amounts.samples, tell)
        copied = _copied(engine, journal, haystacks, wanted.amounts.haystacks, tell)
        spans = _spans(engine, journal, wanted, tell)
        found = _found(engine, wanted, ranks, copied, spans, time.monotonic() - began)
        writing.write(engine, found)
    return found


def _require(wanted: Wanted) -> None:
    out = wanted.out
    if wanted.amounts.samples < 2:
        why = "means have standard errors only from two on"
        raise UsageError(f"cannot rank by {wanted.amounts.samples} samples", why, "Give 2 or more.")
    if out.suffix not in (".yaml", ".yml"):
        raise UsageError(f"cannot write a profile '{out}'", "it is no .yaml file", "Rename it.")
    if not out.parent.is_dir():
        why = f"there is no folder '{out.parent}'"
        raise UsageError(f"cannot write '{out}'", why, "Make it, or choose another --out.")
    if out.exists() and not wanted.folder.is_dir():
        why = f"it is there, and no calibration of it in '{wanted.folder}'"
        raise UsageError(f"will not replace '{out}'", why, "Choose another --out.")


def _room(engine: Engine, wanted: Wanted) -> int:
    """Tokens of a haystack that is read with full attention."""
    return max(1, min(wanted.length, (engine.window - BESIDE) // 100 * 100))


def _settings(engine: Engine, wanted: Wanted) -> Record:
    """What decides the finished pieces; a run with more of them goes on with those of another."""
    return {
        "calibration": VERSION,
        **of_model(engine),
        "length": wanted.length,
        "seed": wanted.seed,
        "reading": asdict(tapping.options(engine.window)),
        "prose": hashlib.sha256("\n".join(prose()).encode()).hexdigest(),
    }


# --- measuring ----------------------------------------------------------------------------------


def _ranks(
    engine: Engine, journal: Journal, samples: Samples, count: int, tell: Told
) -> dict[str, list[choosing.Ranks]]:
    """The ranks of every sample, by task; the tasks take turns."""
    found: dict[str, list[choosing.Ranks]] = {task: [] for task in TASKS}
    names = [(task, number) for number in range(count) for task in TASKS]
    for done, (task, number) in enumerate(names):
        tell("ranks of heads", done, len(names), "samples")
        name = f"{task}/{number}"
        if journal.get(name) is None:
            journal.put(name, {"ranks": _rank(engine, samples.make(task, number))})
        found[task].append(journal.get(name)["ranks"])
    return found


def _rank(engine: Engine, sample: Sample) -> list[dict[str, list[float]]]:
    gold = torch.cat([torch.arange(*span) for span in sample.gold])
    sizes = tapping.options(engine.window)
    read = tapping.read(engine.decoder, sizes, engine.prompt, sample.ids, sample.question)
    return [
        {kind: [round(rank, DIGITS) for rank in heads] for kind, heads in ranks.items()}
        for ranks in (layer_ranks(states, gold) for states in read)
    ]


def _copied(
    engine: Engine, journal: Journal, haystacks: Haystacks, count: int, tell: Told
) -> list[Record]:
    """What came of every needle."""
    for number in range(count):
        tell("copy scores", number, count, "haystacks")
        name = f"copying/{number}"
        if journal.get(name) is None:
            journal.put(name, {"needles": _copy(engine, haystacks.make(number))})
    pieces = (journal.get(f"copying/{number}") or {} for number in range(count))
    return [needle for piece in pieces for needle in piece["needles"]]


def _copy(engine: Engine, haystack: Haystack) -> list[Record]:
    ends, tokenizer = engine.files.eos_ids(), engine.files.tokenizer
    found = copying.copy_scores(engine.decoder, engine.prompt, haystack, ends)
    return [
        {
            "value": needle.value,
            "answer": tokenizer.decode(copied.answer, skip_special_tokens=True),
            "scores": [[round(score, 4) for score in row] for row in copied.scores.tolist()],
        }
        for needle, copied in zip(haystack.needles, found, strict=True)
    ]


def _spans(engine: Engine, journal: Journal, wanted: Wanted, tell: Told) -> Record:
    """Fields of `SpanFit`, by layer."""
    from longctx.core.calibrate.span_search import Shape, search

    given = engine.profile.methods.get(profile_file.LTRI, {})
    shape = Shape(**{name: given[name] for name in vars(Shape()) if name in given})
    needles, trials = wanted.amounts.needles, wanted.amounts.trials
    name = f"spans/{needles}/{trials}"
    if journal.get(name) is None:

        def on_progress(done: int, total: int) -> None:
            tell("spans", done, total, "steps")

        fit = search(engine, needles, trials, wanted.seed, on_progress, shape)
        journal.put(name, asdict(fit))
    return journal.get(name) or {}


# --- what was found -------------------------------------------------------------------------------


def _found(
    engine: Engine,
    wanted: Wanted,
    ranks: dict[str, list[choosing.Ranks]],
    copied: Sequence[Record],
    spans: Record,
    seconds: float,
) -> Calibration:
    rows, layers = choosing.table(ranks), engine.decoder.layers
    heads = copying.score_table([needle["scores"] for needle in copied])
    selecting = {layer.index for layer in layers if layer.window is None}
    return Calibration(
        model=engine.files.name,
        device=engine.device,
        dtype=dtype_name(engine.dtype),
        length=wanted.length,
        samples=wanted.amounts.samples,
        seed=wanted.seed,
        rows=rows,
        heads=choosing.choose(rows, len(layers)),
        copying=heads,
        needles=len(copied),
        answered=sum(n["value"].casefold() in n["answer"].casefold() for n in copied),
        retrieval_heads=copying.best_of_layers(heads, selecting),
        spans=spans,
        profile=wanted.out,
        folder=wanted.folder,
        seconds=seconds,
    )
