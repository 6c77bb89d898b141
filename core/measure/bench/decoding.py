"""How fast each decode policy decodes at a given length, beside what it must read.

The cache of the prompt is filled at random, so nothing is read before; what decodes is the
pipeline's own loop. Knows no policy: each says itself what it attended to.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.common.device import empty_cache
from longctx.core.decode import policies as decoding
from longctx.core.measure.bench import ceilings
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.decoded import Decoded
from longctx.core.measure.bench.generating import measure_generate
from longctx.core.measure.bench.machine import Machine, machine_of
from longctx.core.measure.bench.policies import measure_policies
from longctx.core.measure.bench.shapes import Wanted, open_engine

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Report:
    """What was measured.

    Attributes:
        machine: where and with what.
        ceilings: what is possible here.
        decoded: for each length all policies, and then what runs beside them.
    """

    machine: Machine
    ceilings: Ceilings
    decoded: list[Decoded]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `bench decode`."""
        return {"schema_version": SCHEMA_VERSION, "bench": "decode", **asdict(self)}


def decode(
    wanted: Wanted,
    tokens: Sequence[int] = (32768,),
    policies: Sequence[str] = (),
    answer: int = 256,
    baselines: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
) -> Report:
    """Measures tokens of an answer after prompts of random keys and values.

    Args:
        wanted: the model and the device; its method is not used.
        tokens: length of each prompt.
        policies: each as `NAME[:OPTION=VALUE,...]`; none: all there are, as they are by default.
        answer: tokens that are timed, rounded up to whole strides of a policy that has them.
        baselines: also dense decoding with the layers of transformers, and its `generate`.
        on_note: gets a line at each step.

    Raises:
        UsageError: an unknown shape, model, device, policy or option.
        LongctxError: no room for the model.
    """
    chosen = [decoding.choose(text, {}) for text in policies or decoding.names()]
    engine = open_engine(wanted)
    on_note("making the model")
    layer = engine.decoder.layers[0]
    on_note("measuring the ceilings")
    found = ceilings.measure(layer, engine.device, engine.dtype, None)
    rows: list[Decoded] = []
    for length in tokens:
        empty_cache(engine.device)
        rows += measure_policies(engine, length, chosen, answer, found, on_note, baselines)
        if baselines:
            empty_cache(engine.device)
            rows += measure_generate(engine, length, answer, found, on_note)
    return Report(machine_of(engine), found, rows)
