"""How fast documents are read, beside what the device could do.

Runs what `ingest` runs, from the tokens on: the same stages, with the state written meanwhile.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longctx.core.common.device import empty_cache, peak_memory, reset_peak_memory
from longctx.core.engine.setup import Engine
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import DocumentReading
from longctx.core.ingest.resume import header
from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.baselines import Baseline, measure_baselines
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.floors import Floor, floor_of
from longctx.core.measure.bench.machine import Machine, machine_of
from longctx.core.measure.bench.reading import Nowhere, RandomReading, warm_up
from longctx.core.measure.bench.shapes import Wanted, open_engine
from longctx.core.measure.bench.sizes import Size, sized
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library

SCHEMA_VERSION = 1
NAME = "random"


@dataclass(frozen=True)
class Reading:
    """One document that was read.

    Attributes:
        tokens, chunk, budget: of the document; read at a time; kept in each layer's cache, None:
            all.
        seconds, tokens_per_s: with the state written, without loading the model.
        checkpoint_s: that the writing of checkpoints took beside it.
        floor: the least that it could have taken.
        over_floor: seconds over those of the floor.
        peak_memory: bytes at most on the device; None where unknown.
        state_bytes: of the state on disk; None where none was written.
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
class Report:
    """What was measured.

    Attributes:
        machine: where and with what.
        depth: layers of the model that reading runs, the last of them in part.
        ceilings: what is possible here.
        readings: one for each length, for each pair of chunk and budget.
        growth: one for each pair, where there are two lengths.
        baselines: other ways to read as much, in the same run.
    """

    machine: Machine
    depth: int
    ceilings: Ceilings
    readings: list[Reading]
    growth: list[Growth]
    baselines: list[Baseline]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `bench ingest`."""
        return {"schema_version": SCHEMA_VERSION, "bench": "ingest", **asdict(self)}


def ingest(
    wanted: Wanted,
    tokens: Sequence[int] = (131072,),
    sizes: Sequence[Size] = (),
    save: bool = True,
    baselines: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
) -> Report:
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
    engine = open_engine(wanted)
    sizes = [sized(engine.options, *size) for size in sizes or [(None, None)]]
    on_note("making the model")
    with TemporaryDirectory(prefix="longctx-bench-") as name:
        folder = Path(name) if save else None
        layer, device = engine.decoder.layers[0], engine.device
        on_note("measuring the ceilings")
        found = ceilings.measure(layer, device, engine.dtype, folder)
        readings = []
        for options in sizes:
            engine.options, part = options, options.reading
            on_note("warming up")
            warm_up(engine, max(tokens))
            kept = "everything kept" if part.budget is None else f"budget {part.budget:,}"
            for length in tokens:
                on_note(f"reading {length:,} tokens, chunk {part.chunk:,}, {kept}")
                readings.append(_read(engine, length, found, folder))
    parts = [options.reading for options in sizes]
    near = [(part.chunk, part.budget or part.window) for part in parts]
    others = measure_baselines(engine, tokens, near, on_note) if baselines else []
    return Report(
        machine=machine_of(engine),
        depth=engine.new_method().depth,
        ceilings=found,
        readings=readings,
        growth=[growth for part in parts for growth in _growth(readings, part)],
        baselines=others,
    )


def _read(engine: Engine, tokens: int, found: Ceilings, folder: Path | None) -> Reading:
    empty_cache(engine.device)
    reset_peak_memory(engine.device)
    if folder is None:
        seconds, checkpoint_s = _run(engine, tokens, Nowhere())
        state = None
    else:
        library = Library.open(folder / "library", create=True)
        with library.writer(NAME, header(engine)) as writer:
            seconds, checkpoint_s = _run(engine, tokens, writer)
        state = library.document(NAME).size()
        library.remove(NAME)
    method, part = engine.new_method(), engine.options.reading
    config, layers = engine.files.config, engine.decoder.layers
    floor = floor_of(config, method, layers, tokens, found, state)
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


def _run(engine: Engine, tokens: int, writer: Any) -> tuple[float, float]:
    """Reads once; seconds in all and seconds of checkpoints."""
    behind = WriterBehind(writer, engine.device)
    reading = RandomReading(tokens, engine.files.config.vocab_size, behind)
    run = DocumentReading(engine, reading, behind, Cadence(), expected=tokens)
    started = time.perf_counter()
    run.read()
    ceilings.wait_for(engine.device)
    return time.perf_counter() - started, run.checkpoints.spent


def _growth(readings: list[Reading], options: Any) -> list[Growth]:
    size = options.chunk, options.budget
    same = [reading for reading in readings if (reading.chunk, reading.budget) == size]
    short, long = (choose(same, key=lambda reading: reading.tokens) for choose in (min, max))
    if short.tokens == long.tokens:
        return []
    ratio = long.tokens / short.tokens, long.seconds / short.seconds
    return [Growth(*size, *(round(number, 3) for number in ratio))]
