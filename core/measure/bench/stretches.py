"""How long a chunk takes after a given number of tokens, over randomly filled keys and values.

The time of a whole document is estimated from a few such places. Runs what `ingest` runs, but
writes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from longctx.core import methods
from longctx.core.common.device import empty_cache, peak_memory, reset_peak_memory
from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import Growing, Method
from longctx.core.engine.chunk_graphs import SETTLED
from longctx.core.engine.encode import encode
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench.ceilings import Ceilings, Clock
from longctx.core.measure.bench.floors import Floor, floor_of
from longctx.core.measure.bench.machine import machine_of
from longctx.core.measure.bench.reading import Nowhere, filled, random_ids
from longctx.core.measure.bench.shapes import Wanted
from longctx.core.measure.bench.workbench import Report, Size, Workbench, workbench
from longctx.core.store.behind import WriterBehind

CHUNKS = 16  # that are measured in one place
UNCOUNTED = 2  # chunks before them
UNRECORDED = SETTLED + UNCOUNTED + 1  # before them on a GPU, which may replay chunks from then on


@dataclass(frozen=True)
class Stretch:
    """Some chunks of a document.

    Attributes:
        after: tokens that the memory held before, or those of the first chunk; a few chunks that
            are not counted come between.
        tokens: that were read.
        seconds_per_chunk: of the chunks, of `chunk` tokens each.
        tokens_per_s: likewise.
        peak_memory: bytes at most on the device; None where unknown.
    """

    after: int
    tokens: int
    seconds_per_chunk: float
    tokens_per_s: float
    peak_memory: int | None


@dataclass(frozen=True)
class WholeReading:
    """What reading a whole document takes, as far as its stretches tell.

    Attributes:
        tokens: as many as the memory held before the last stretch.
        seconds, tokens_per_s: the first chunk, and the others by the trapezoid rule.
        floor: the least that it could have taken.
        over_floor: seconds over those of the floor.
    """

    tokens: int
    seconds: float
    tokens_per_s: float
    floor: Floor
    over_floor: float


@dataclass(frozen=True)
class Curve:
    """One method's speed along a document.

    Attributes:
        chunk: tokens read at a time.
        first_tokens, first_s: of the first chunk, which may be larger.
        stretches: the one after the first chunk, and those after as many tokens as were asked for.
        whole: the document that ends where the last stretch begins.
    """

    chunk: int
    first_tokens: int
    first_s: float
    stretches: list[Stretch]
    whole: WholeReading


@dataclass(frozen=True)
class CurveReport(Report):
    """What was measured.

    Attributes:
        ceilings: what is possible here.
        curves: one for each size of a chunk.
    """

    bench = "ingest --at"
    ceilings: Ceilings
    curves: list[Curve]


def measure_at(
    wanted: Wanted,
    places: Sequence[int],
    sizes: Sequence[Size] = (),
    on_note: Callable[[str], None] = lambda text: None,
) -> CurveReport:
    """Measures the reading of a few chunks in each of some places.

    Args:
        wanted: the model, the method, the device.
        places: tokens that were read before.
        sizes: pairs of chunk and budget; none: those of the shape, the method or the profile.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model or device, a method whose memory cannot be filled, or a
            place inside the first chunk.
        LongctxError: no room for the model or what it would have read.
    """
    with workbench(wanted, on_note, sizes, require=partial(_require, places)) as bench:
        curves = [_curve(bench, sorted({*places})) for _ in bench.each_size()]
    return CurveReport(machine_of(bench.engine), bench.ceilings, curves)


def _require(places: Sequence[int], engine: Engine) -> None:
    if not issubclass(methods.load(engine.method_name).Method, Growing):
        raise UsageError(
            f"--at is not for the method {engine.method_name!r}",
            "each of its chunks takes as long as any other",
            "Leave it out.",
        )
    first = engine.options.reading.near
    if min(places) <= first:
        raise UsageError(
            f"cannot measure after {min(places):,} tokens",
            f"a document begins with a chunk of {first:,}",
            "Give --at more tokens.",
        )


def _curve(bench: Workbench, places: list[int]) -> Curve:
    engine = bench.engine
    bench.note("reading the first chunks")
    _beginning(engine, places[-1])  # once uncounted, so that a GPU's kernels are chosen
    first_tokens, first_s, stretch = _beginning(engine, places[-1])
    stretches = [stretch]
    for tokens in places:
        bench.note(f"reading {CHUNKS} chunks after {tokens:,} tokens")
        stretches.append(_after(engine, tokens))
    config, layers, method = engine.files.config, engine.decoder.layers, engine.new_method()
    floor = floor_of(config, method, layers, places[-1], bench.ceilings, None)
    seconds = first_s + between(stretches)
    return Curve(
        chunk=engine.options.reading.chunk,
        first_tokens=first_tokens,
        first_s=round(first_s, 6),
        stretches=stretches,
        whole=WholeReading(
            tokens=places[-1],
            seconds=round(seconds, 4),
            tokens_per_s=round(places[-1] / seconds, 1),
            floor=floor,
            over_floor=round(seconds / floor.seconds, 3),
        ),
    )


def _beginning(engine: Engine, tokens: int) -> tuple[int, float, Stretch]:
    """The first chunk of a document of so many tokens, its seconds, and the chunks after it."""
    empty_cache(engine.device)
    method = engine.new_method(reading=True, tokens=tokens)
    first = method.chunk
    return first, _read(engine, method, 1), _stretch(engine, method, first)


def _after(engine: Engine, tokens: int) -> Stretch:
    """Chunks after so many tokens."""
    room = (_uncounted(engine) + CHUNKS) * engine.options.reading.chunk
    return _stretch(engine, filled(engine, tokens, room), tokens)


def _uncounted(engine: Engine) -> int:
    return UNCOUNTED if engine.device == "cpu" else UNRECORDED


def between(stretches: Sequence[Stretch]) -> float:
    """Seconds from the beginning of the first stretch to that of the last: the trapezoid rule."""
    return sum(
        (b.after - a.after) * (1 / a.tokens_per_s + 1 / b.tokens_per_s) / 2
        for a, b in pairwise(stretches)
    )


def _stretch(engine: Engine, method: Method, after: int) -> Stretch:
    reset_peak_memory(engine.device)
    tokens = CHUNKS * method.chunk
    seconds = _read(engine, method, CHUNKS, _uncounted(engine))
    peak = peak_memory(engine.device)
    return Stretch(after, tokens, round(seconds / CHUNKS, 6), round(tokens / seconds, 2), peak)


def _read(engine: Engine, method: Method, chunks: int, uncounted: int = 0) -> float:
    """Seconds of reading so many chunks, until their rows are in host memory."""
    before, whole = uncounted * method.chunk, (uncounted + chunks) * method.chunk
    ids = random_ids(whole, engine.files.config.vocab_size)
    sink, clock = WriterBehind(Nowhere(), engine.device), Clock(engine.device)
    with sink:
        for read in encode(engine.reader, method, ids[:0], [ids], sink):
            if read == before:
                sink.wait()
                clock = Clock(engine.device)
    return clock.seconds()
