"""What every measurement needs: a model, the ceilings, sizes to try, and a report of it all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

from longctx.core.common.device import empty_cache, is_out_of_memory, peak_memory, reset_peak_memory
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.contracts.method import MethodOptions
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.machine import Machine
from longctx.core.measure.bench.shapes import Wanted, open_engine

SCHEMA_VERSION = 1
Size = tuple[int | None, int | None]  # chunk and budget, as a user gives them
Given = TypeVar("Given")


@dataclass(frozen=True)
class Workbench:
    """A model that is measured.

    Attributes:
        engine: the model.
        ceilings: what is possible here.
        note: gets a line at each step.
        sizes: the method's options with each chunk and budget that was asked for.
        folder: for states, deleted afterwards; None: nothing is written.
        runs: how often each thing is measured.
    """

    engine: Engine
    ceilings: Ceilings
    note: Callable[[str], None]
    sizes: Sequence[Any] = ()
    folder: Path | None = None
    runs: int = 1

    def each_size(self) -> Iterator[Any]:
        """Sets the options of the engine to each of `sizes` in turn."""
        for options in self.sizes:
            self.engine.options = options
            yield options


@dataclass(frozen=True)
class Report:
    """What was measured.

    Attributes:
        bench: which of the benchmarks it was.
        machine: where and with what.
    """

    bench: ClassVar[str]
    machine: Machine

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `bench`."""
        return {"schema_version": SCHEMA_VERSION, "bench": self.bench, **asdict(self)}


@contextmanager
def workbench(
    wanted: Wanted,
    on_note: Callable[[str], None],
    sizes: Sequence[Size] = (),
    save: bool = False,
    require: Callable[[Engine], object] = lambda engine: None,
) -> Iterator[Workbench]:
    """Opens a model and measures the ceilings.

    Args:
        wanted: the model, the method, the device.
        on_note: gets a line at each step.
        sizes: pairs of chunk and budget; none: those of the shape, the method or the profile.
        save: make a folder for states, on the disk that TMPDIR names; the disk is measured too.
        require: refuses a model with options that cannot be measured.

    Raises:
        UsageError: an unknown shape, model or device, or sizes that cannot be.
        LongctxError: no room for the model.
    """
    engine = open_engine(wanted)
    require(engine)
    options = [sized(engine.options, *size) for size in sizes or [(None, None)]]
    on_note("making the model")
    layer = engine.decoder.layers[0]
    with TemporaryDirectory(prefix="longctx-bench-") if save else nullcontext() as name:
        folder = None if name is None else Path(name)
        on_note("measuring the ceilings")
        found = ceilings.measure(layer, engine.device, engine.dtype, folder, engine.precision)
        yield Workbench(engine, found, on_note, options, folder, wanted.runs)


def sized(
    options: MethodOptions, chunk: int | None = None, budget: int | None = None
) -> MethodOptions:
    """The same options with another chunk and budget; ends that do not fit are made shorter.

    Args:
        options: of any method that reads in chunks.
        chunk, budget: tokens; None: as the other one, or as they are.

    Raises:
        UsageError: the method has no budget, or they do not fit one another.
    """
    try:
        return options.with_reading(options.reading.sized(chunk, budget))
    except ValueError as error:
        raise UsageError(
            f"cannot read with chunk {chunk} and budget {budget}", str(error), "Use other sizes."
        ) from error


def attempt(device: str, run: Callable[[], Given]) -> tuple[Given | None, str, int | None]:
    """Runs something that may fail: an error, or running out of memory, is a result too.

    Returns:
        What it gave (None where it failed), why it failed (else empty), and the most bytes used on
        the device (None where unknown).
    """
    given, failed = None, ""
    reset_peak_memory(device)
    try:
        given = run()
    except LongctxError as error:
        failed = f"{error.what}: {error.why}" if error.why else error.what
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        failed = "out of memory"
    peak = peak_memory(device)
    empty_cache(device)
    return given, failed, peak
