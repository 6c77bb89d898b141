"""Other ways to read as many tokens with the same model, measured in the same run.

Full attention as transformers runs it, and a cache of sinks and recent tokens as in StreamingLLM
(Xiao et al., 2023), which forgets what lies between. Both run all layers; neither can be asked
about what it read, so nothing is written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from longctx.core.common.errors import LongctxError
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench.ceilings import Clock
from longctx.core.measure.bench.spread import Spread, of_runs
from longctx.core.measure.bench.workbench import Workbench, attempt
from longctx.core.model.adapter import Decoder, Layer

FULL = (32768, 65536, 131072, 262144)  # tokens
SINKS = 4


@dataclass(frozen=True)
class Baseline:
    """One document read in another way.

    Attributes:
        name: of the way.
        tokens: of the document.
        chunk, budget: tokens read at a time, and kept; None: all.
        seconds, tokens_per_s: None where it failed.
        peak_memory: most bytes used on the device; None where unknown.
        failed: why; empty where it did not.
        spread: the least and the most of figures over all runs, of which this is the middle one;
            empty where there was one.
    """

    name: str
    tokens: int
    chunk: int | None
    budget: int | None
    seconds: float | None
    tokens_per_s: float | None
    peak_memory: int | None
    failed: str = ""
    spread: Spread = field(default_factory=dict)


def measure_baselines(bench: Workbench, tokens: Sequence[int]) -> list[Baseline]:
    """Full attention up to the length where it fails, and a recent window for each size.

    Args:
        bench: the model, and the sizes.
        tokens: lengths of documents. The window reads the shortest: its rate is that of any.
    """
    found, engine, shortest = [], bench.engine, min(tokens)
    for length in [n for n in FULL if n <= max(tokens)] or [shortest]:
        bench.note(f"reading {length:,} tokens with the full attention of transformers")
        read = partial(_read_full, engine, length)
        found.append(_timed("transformers, full attention", bench, length, None, None, read))
        if found[-1].failed:
            break
    for part in (options.reading for options in bench.sizes):
        chunk, budget = part.chunk, part.budget or part.window
        bench.note(f"reading {shortest:,} tokens with a recent window of {budget:,}")
        read = partial(_read_recent, engine.decoder, shortest, chunk, budget)
        found.append(_timed("sinks and recent tokens", bench, shortest, chunk, budget, read))
    return found


def _read_full(engine: Engine, tokens: int) -> None:
    ids = torch.zeros(1, tokens, dtype=torch.long, device=engine.device)
    with engine.decoder.as_it_is() as model, torch.inference_mode():
        base: Any = model.base_model
        try:
            base(ids, use_cache=True)
        except ValueError as error:  # transformers has no such attention for this architecture
            raise LongctxError(str(error).splitlines()[0]) from error


def _read_recent(decoder: Decoder, tokens: int, chunk: int, budget: int) -> None:
    memory = Recent(budget)
    for ids in torch.zeros(tokens, dtype=torch.long).split(chunk):
        decoder.read(ids, memory)


def _timed(
    name: str,
    bench: Workbench,
    tokens: int,
    chunk: int | None,
    budget: int | None,
    read: Callable[[], None],
) -> Baseline:
    """Reads as often as wanted; running out of memory is a result."""
    device = bench.engine.device

    def run() -> float:
        clock = Clock(device)
        read()
        return round(clock.seconds(), 4)

    def once() -> Baseline:
        seconds, failed, peak = attempt(device, run)
        rate = round(tokens / seconds, 1) if seconds else None
        return Baseline(name, tokens, chunk, budget, seconds, rate, peak, failed)

    return of_runs(once, bench.runs, "seconds", ("tokens_per_s",))


class Recent:
    """A memory of the first tokens and the latest ones, at consecutive positions.

    Args:
        budget: tokens that each layer's cache keeps after a chunk.
    """

    def __init__(self, budget: int):
        self._budget, self._kept = budget, {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attends to [kept | chunk], then forgets; see `Memory.attend`."""
        if layer.index in self._kept:
            old_k, old_v = self._kept[layer.index]
            k, v = torch.cat([old_k, k], dim=1), torch.cat([old_v, v], dim=1)
        T, S = q.shape[1], k.shape[1]
        self._kept[layer.index] = self._cut(k), self._cut(v)
        q = layer.rotate(q, slice(S - T, S), S)
        k = layer.rotate(k, slice(0, S), S)
        return layer.attention(q, k, v)

    def _cut(self, x: Tensor) -> Tensor:
        """(G, S, D) to (G, at most budget, D)."""
        if x.shape[1] <= self._budget:
            return x
        sinks = min(SINKS, self._budget)
        recent = x[:, x.shape[1] - (self._budget - sinks) :]
        return torch.cat([x[:, :sinks], recent], dim=1)
