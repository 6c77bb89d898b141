"""How fast each decode policy decodes at a given length, beside what it must read.

The cache of the prompt is filled at random, so nothing is read before; what decodes is the
pipeline's own loop. Knows no policy: each says itself what it attended to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longctx.core.common.device import empty_cache
from longctx.core.decode import policies as decoding
from longctx.core.measure.bench.ceilings import Ceilings
from longctx.core.measure.bench.decoded import Decoded
from longctx.core.measure.bench.generating import measure_generate
from longctx.core.measure.bench.machine import machine_of
from longctx.core.measure.bench.policies import measure_policies
from longctx.core.measure.bench.shapes import Wanted
from longctx.core.measure.bench.workbench import Report, workbench


@dataclass(frozen=True)
class DecodeReport(Report):
    """What was measured.

    Attributes:
        ceilings: what is possible here.
        decoded: for each length all policies, and then what runs beside them.
    """

    bench = "decode"
    ceilings: Ceilings
    decoded: list[Decoded]


def decode(
    wanted: Wanted,
    tokens: Sequence[int] = (32768,),
    policies: Sequence[str] = (),
    answer: int = 256,
    baselines: bool = False,
    on_note: Callable[[str], None] = lambda text: None,
) -> DecodeReport:
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
    rows: list[Decoded] = []
    with workbench(wanted, on_note) as bench:
        for length in tokens:
            empty_cache(bench.engine.device)
            rows += measure_policies(bench, length, chosen, answer, baselines)
            if baselines:
                empty_cache(bench.engine.device)
                rows += measure_generate(bench, length, answer)
    return DecodeReport(machine_of(bench.engine), bench.ceilings, rows)
