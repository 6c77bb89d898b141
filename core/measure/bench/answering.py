"""How fast questions are answered: from disk with a cold or warm page cache, or from memory.

The state is made here, without reading. The stages are those of `Session`, apart from tokens
becoming text.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longctx.core import methods
from longctx.core.common.errors import UsageError
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.asker import Answer, Asker
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.machine import Machine, machine_of
from longctx.core.measure.bench.shapes import Wanted, open_engine
from longctx.core.measure.bench.sizes import Size, sized

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Report:
    """What was measured.

    Attributes:
        machine: where and with what.
        ceilings: what is possible here.
        answers: for each pair of chunk and budget, each length and state of the page cache.
    """

    machine: Machine
    ceilings: Ceilings
    answers: list[Answer]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `bench ask`."""
        return {"schema_version": SCHEMA_VERSION, "bench": "ask", **asdict(self)}


def ask(
    wanted: Wanted,
    tokens: Sequence[int] = (131072,),
    sizes: Sequence[Size] = (),
    gather: int | None = None,
    save: bool = True,
    on_note: Callable[[str], None] = lambda text: None,
) -> Report:
    """Measures answers from documents of random tokens.

    Args:
        wanted: the model, the method, the device.
        tokens: length of each document.
        sizes: pairs of chunk and budget; none: those of the shape, the method or the profile.
        gather: tokens to recompute; None: the method's.
        save: answer from a state on disk; otherwise from a memory that is filled at random.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model or device, sizes that cannot be, a method that
            keeps nothing to find an answer by, or one that needs a state to answer from.
        LongctxError: no room for the model or the state.
    """
    engine = open_engine(wanted)
    _require_searching(engine)
    sizes = [sized(engine.options, *size) for size in sizes or [(None, None)]]
    if not save:
        _require_recalling(engine)
    on_note("making the model")
    answers: list[Answer] = []
    with TemporaryDirectory(prefix="longctx-bench-") as name:
        folder = Path(name) if save else None
        layer = engine.decoder.layers[0]
        on_note("measuring the ceilings")
        found = ceilings.measure(layer, engine.device, engine.dtype, folder)
        for options in sizes:
            engine.options = options
            for length in tokens:
                asker = Asker(engine, length, gather, found, on_note)
                answers += asker.from_disk(folder) if folder else asker.from_memory()
    return Report(machine_of(engine), found, answers)


def _require_searching(engine: Engine) -> None:
    if not methods.load(engine.method_name).Method.capabilities.searches:
        raise UsageError(
            f"answers with the method {engine.method_name!r} are not measured here",
            "what it keeps is of a fixed size and is not searched",
            "Use another --method; `bench ingest` measures how it reads.",
        )


def _require_recalling(engine: Engine) -> None:
    if engine.options.reading.budget is not None:
        raise UsageError(
            f"the method {engine.method_name!r} cannot answer without a state",
            "it finds in the rows on disk what to recompute",
            "Leave --no-save out, or use --method reattention.",
        )
