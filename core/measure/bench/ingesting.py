"""How fast documents are read, beside what the device could do.

Runs what `ingest` runs, from the tokens on: the same stages, with the state written meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from longctx.core.common.device import empty_cache, peak_memory, reset_peak_memory
from longctx.core.contracts.method import MethodOptions
from longctx.core.engine.setup import Engine
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.document_reading import DocumentReading
from longctx.core.ingest.resume import header
from longctx.core.measure.bench.baselines import Baseline, measure_baselines
from longctx.core.measure.bench.ceilings import Ceilings, Clock
from longctx.core.measure.bench.floors import Floor, floor_of
from longctx.core.measure.bench.machine import machine_of
from longctx.core.measure.bench.reading import NAME, Nowhere, RandomReading, warm_up
from longctx.core.measure.bench.shapes import Wanted
from longctx.core.measure.bench.spread import Spread, of_runs
from longctx.core.measure.bench.workbench import Report, Size, Workbench, workbench
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library
from longctx.core.store.writer import Writer


@dataclass(frozen=True)
class Reading:
    """One document.

    Attributes:
        tokens, chunk, budget: of the document; read at a time; kept in each layer's cache, None:
            all.
        seconds, tokens_per_s: with the state written, without loading the model.
        checkpoint_s: that the writing of checkpoints took beside it.
        floor: the least that it could have taken.
        over_floor: seconds over those of the floor.
        peak_memory: bytes at most on the device; None where unknown.
        state_bytes: of the state on disk; None where none was written.
        spread: the least and the most of figures over all runs, of which this is the middle one;
            empty where there was one.
    """

    tokens: int
    chunk: int
    budget: int | None
    seconds: float
    tokens_per_s: float
    checkpoint_s: float
    floor: Floor
    over_floor: float
    peak_memory: int | None
    state_bytes: int | None
    spread: Spread = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """How the time grows with the length: from the shortest document to the longest.

    Attributes:
        chunk, budget: of both readings; None: all is kept.
        tokens, seconds: the longest over the shortest; equal where the time grows in proportion.
    """

    chunk: int
    budget: int | None
    tokens: float
    seconds: float


@dataclass(frozen=True)
class IngestReport(Report):
    """What was measured.

    Attributes:
        depth: layers of the model that reading runs, the last of them in part.
        ceilings: what is possible here.
        readings: one for each length, for each pair of chunk and budget.
        growth: one for each pair, where there are two lengths.
        baselines: other ways to read as much, in the same run.
    """

    bench = "ingest"
    depth: int
    ceilings: Ceilings
    readings: list[Reading]
    growth: list[Growth]
    baselines: list[Baseline]


def ingest(
    wanted: Wanted,
    tokens: Sequence[int] = (131072,),
    sizes: Sequence[Size] = (),
    save: bool = True,
    baselines: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
) -> IngestReport:
    """Measures the reading of documents of random tokens.

    The state is written to a folder for temporary files (TMPDIR names the disk) and deleted.

    Args:
        wanted: the model, the method, the device.
        tokens: length of each document.
        sizes: pairs of chunk and budget; none: those of the shape, the method or the profile.
        save: write the state; otherwise nothing is written at all.
        baselines: also measure other ways to read.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model or device, or sizes that cannot be.
        LongctxError: no room for the model or the state.
    """
    readings: list[Reading] = []
    with workbench(wanted, on_note, sizes, save) as bench:
        for options in bench.each_size():
            part = options.reading
            on_note("warming up")
            warm_up(bench.engine, max(tokens))
            kept = "everything kept" if part.budget is None else f"budget {part.budget:,}"
            for length in tokens:
                on_note(f"reading {length:,} tokens, chunk {part.chunk:,}, {kept}")
                read = partial(_read, bench, length)
                readings.append(of_runs(read, bench.runs, "seconds", ("tokens_per_s",)))
        others = measure_baselines(bench, tokens) if baselines else []
        return IngestReport(
            machine=machine_of(bench.engine),
            depth=bench.engine.new_method().depth,
            ceilings=bench.ceilings,
            readings=readings,
            growth=[growth for options in bench.sizes for growth in _growth(readings, options)],
            baselines=others,
        )


def _read(bench: Workbench, tokens: int) -> Reading:
    engine, state = bench.engine, None
    empty_cache(engine.device)
    reset_peak_memory(engine.device)
    if bench.folder is None:
        seconds, checkpoint_s = _run(engine, tokens, Nowhere())
    else:
        library = Library.open(bench.folder / "library", create=True)
        with library.writer(NAME, header(engine)) as writer:
            seconds, checkpoint_s = _run(engine, tokens, writer)
        state = library.document(NAME).size()
        library.remove(NAME)
    method, part = engine.new_method(), engine.options.reading
    config, layers = engine.files.config, engine.decoder.layers
    floor = floor_of(config, method, layers, tokens, bench.ceilings, state)
    return Reading(
        tokens=tokens,
        chunk=part.chunk,
        budget=part.budget,
        seconds=round(seconds, 4),
        tokens_per_s=round(tokens / seconds, 1),
        checkpoint_s=round(checkpoint_s, 4),
        floor=floor,
        over_floor=round(seconds / floor.seconds, 3),
        peak_memory=peak_memory(engine.device),
        state_bytes=state,
    )


def _run(engine: Engine, tokens: int, writer: Writer) -> tuple[float, float]:
    """Reads once; seconds in all and seconds of checkpoints."""
    behind = WriterBehind(writer, engine.device)
    reading = RandomReading(tokens, engine.files.config.vocab_size, behind)
    run = DocumentReading(engine, reading, behind, Cadence(), expected=tokens)
    clock = Clock(engine.device)
    run.read()
    return clock.seconds(), run.checkpoints.spent


def _growth(readings: list[Reading], options: MethodOptions) -> list[Growth]:
    size = options.reading.chunk, options.reading.budget
    same = [reading for reading in readings if (reading.chunk, reading.budget) == size]
    short, long = (choose(same, key=lambda reading: reading.tokens) for choose in (min, max))
    if short.tokens == long.tokens:
        return []
    tokens, seconds = long.tokens / short.tokens, long.seconds / short.seconds
    return [Growth(short.chunk, short.budget, round(tokens, 3), round(seconds, 3))]
