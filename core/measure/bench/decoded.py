"""The measured times of tokens after one prompt, and their lower bound."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from longctx.core.contracts.policy import Spent
from longctx.core.measure.bench.floors import entry_bytes, weight_bytes
from longctx.core.measure.bench.spread import Spread, of_runs
from longctx.core.measure.bench.workbench import Workbench, attempt


@dataclass(frozen=True)
class Decoded:
    """The tokens after one prompt, decoded in one way.

    Attributes:
        name: of the policy, or of what runs beside them.
        options: of the policy.
        tokens: of the prompt.
        answer: tokens that were timed.
        ready_s: seconds before them: buffers, the first steps, captured graphs, compilation.
        tokens_per_s: of the tokens that were timed.
        bound_tokens_per_s: the same if each read all matrices, what it attends to and the bounds
            of the pages it scores once, as fast as a copy reads and writes.
        over_bound: the time of a token over that of the bound.
        attended: entries that a token attended to, mean over tokens, layers and key/value heads.
        scored: pages whose bounds a token read, likewise.
        refreshes: of all steps, those that attended to everything to choose anew, mean over the
            layers; None: there are no such steps.
        held: most entries that were held for a layer and key/value head.
        peak_memory: bytes at most on the device, the whole prompt's cache included; None where
            unknown.
        captured: kinds of steps that ran as graphs.
        failed: why there are no figures; empty where there are.
        spread: the least and the most of figures over all runs, of which this is the middle one;
            empty where there was one.
    """

    name: str
    options: dict[str, Any]
    tokens: int
    answer: int
    ready_s: float | None = None
    tokens_per_s: float | None = None
    bound_tokens_per_s: float | None = None
    over_bound: float | None = None
    attended: float | None = None
    scored: float | None = None
    refreshes: float | None = None
    held: int | None = None
    peak_memory: int | None = None
    captured: tuple[str, ...] = ()
    failed: str = ""
    spread: Spread = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """What a clock saw.

    Attributes:
        ready_s: seconds before the tokens that count.
        seconds: of a token.
        spent: on these tokens.
        scored: pages whose bounds a token read.
        captured: kinds of steps that ran as graphs.
    """

    ready_s: float
    seconds: float
    spent: Spent
    scored: float = 0.0
    captured: tuple[str, ...] = ()


def decoded(
    bench: Workbench,
    name: str,
    options: dict[str, Any],
    tokens: int,
    answer: int,
    run: Callable[[], Timed],
) -> Decoded:
    """Measures one way to decode; failing, or running out of memory, is a result.

    Args:
        bench: the model.
        name, options, tokens, answer: see `Decoded`.
        run: decodes.
    """
    shown = partial(Decoded, name, options, tokens, answer)

    def once() -> Decoded:
        timed, failed, peak = attempt(bench.engine.device, run)
        if timed is None:
            return shown(peak_memory=peak, failed=failed)
        spent = timed.spent
        bound = bound_s(bench, spent.attended, timed.scored)
        return shown(
            ready_s=round(timed.ready_s, 4),
            tokens_per_s=round(1 / timed.seconds, 2),
            bound_tokens_per_s=round(1 / bound, 2),
            over_bound=round(timed.seconds / bound, 3),
            attended=round(spent.attended, 1),
            scored=round(timed.scored, 1),
            refreshes=spent.refreshes,
            held=spent.held,
            peak_memory=peak,
            captured=timed.captured,
        )

    return of_runs(once, bench.runs, "tokens_per_s", ("over_bound",))


def bound_s(bench: Workbench, attended: float, scored: float) -> float:
    """The least seconds that a token takes.

    It reads the matrices of all layers and of the output once; the keys and values that it attends
    to, where a step that chooses anew attends to all, once; and the smallest and the largest key of
    every page that it scores, which are as large as one key and its value. Nothing is counted of
    what it writes, of weights that an attention leaves behind for a choice, or of the choice.

    Args:
        bench: the model, and how fast the device copies.
        attended: entries that it attends to, mean over layers and key/value heads.
        scored: pages that it scores, likewise.
    """
    engine = bench.engine
    config, layers, itemsize = engine.files.config, engine.decoder.layers, engine.dtype.itemsize
    entries = (attended + scored) * entry_bytes(layers, itemsize)
    return (weight_bytes(config, layers, itemsize) + entries) / bench.ceilings.copy_bytes_s
