"""Other ways to read as many tokens with the same model, measured in the same run.

Full attention as transformers runs it, and a cache of sinks and recent tokens as in StreamingLLM
(Xiao et al., 2023), which forgets what lies between. Both run all layers; neither can be asked
about what it read, so nothing is written.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.core.common.device import empty_cache, is_out_of_memory, peak_memory, reset_peak_memory
from longctx.core.engine.setup import Engine
from longctx.core.measure.bench.ceilings import wait_for
from longctx.core.model.adapter import Decoder, Layer

FULL = (32768, 65536, 131072, 262144)  # tokens
SINKS = 4


@dataclass(frozen=True)
class Baseline:
    """One document that was read in another way.

    Attributes:
        name: of the way.
        tokens: of the document.
        chunk, budget: read at a time, and kept; None: all at once, and all.
        seconds, tokens_per_s: None where it failed.
        peak_memory: bytes at most on the device; None where unknown.
        failed: why; empty where it did not.
    """

    name: str
    tokens: int
    chunk: int | None
    budget: int | None
    seconds: float | None
    tokens_per_s: float | None
    peak_memory: int | None
    failed: str = ""


def measure_baselines(
    engine: Engine,
    tokens: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    on_note: Callable[[str], None],
) -> list[Baseline]:
    """Full attention as far as it goes, and a recent window for each pair of chunk and budget.

    Args:
        engine: the model.
        tokens: lengths of documents. The window reads the shortest: its rate is that of any.
        sizes: pairs of chunk and budget.
        on_note: gets a line at each step.
    """
    found: list[Baseline] = []
    for length in [n for n in FULL if n <= max(tokens)] or [min(tokens)]:
        on_note(f"reading {length:,} tokens with the full attention of transformers")
        found.append(_full(engine, length))
        if found[-1].failed:
            break
    for chunk, budget in sizes:
        on_note(f"reading {min(tokens):,} tokens with a recent window of {budget:,}")
        found.append(_recent(engine, min(tokens), chunk, budget))
    return found


def _full(engine: Engine, tokens: int) -> Baseline:
    decoder = engine.decoder
    ids = torch.zeros(1, tokens, dtype=torch.long, device=engine.device)

    def read() -> None:
        with decoder.as_it_is() as model, torch.inference_mode():
            model.base_model(ids, use_cache=True)

    return _timed("transformers, full attention", engine, tokens, None, None, read)


def _recent(engine: Engine, tokens: int, chunk: int, budget: int) -> Baseline:
    def read() -> None:
        read_recent(engine.decoder, tokens, chunk, Recent(budget))

    return _timed("sinks and recent tokens", engine, tokens, chunk, budget, read)


def read_recent(decoder: Decoder, tokens: int, chunk: int, memory: "Recent") -> None:
    """Reads zeros through all layers over a memory."""
    for ids in torch.zeros(tokens, dtype=torch.long).split(chunk):
        decoder.read(ids, memory)


def _timed(
    name: str,
    engine: Engine,
    tokens: int,
    chunk: int | None,
    budget: int | None,
    read: Callable[[], None],
) -> Baseline:
    """Reads once; running out of memory is a result."""
    reset_peak_memory(engine.device)
    seconds, failed = None, ""
    started = time.perf_counter()
    try:
        read()
        wait_for(engine.device)
        seconds = round(time.perf_counter() - started, 4)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        failed = "out of memory"
    except ValueError as error:  # transformers has no such attention for this architecture
        failed = str(error).splitlines()[0]
    peak = peak_memory(engine.device)
    empty_cache(engine.device)
    rate = round(tokens / seconds, 1) if seconds else None
    return Baseline(name, tokens, chunk, budget, seconds, rate, peak, failed)


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
