"""How long a chunk takes, with each of its fused operations and without it, on this GPU.

    python docs/evaluation/chunk_speed.py --out chunks.jsonl                 # all stages
    python docs/evaluation/chunk_speed.py --stages kernels,chunk --limit 120

Every result is a line of JSON, written when it is known. A stage that would begin after the limit
is left out, and said so. `chunk` reads chunks over full caches, by REFORM with random weights, once
with everything, once without each part, and once as it was before all of them: the model's own
layers, and every operation by its definition. `precision` is fp8 beside bf16: products and what
comes before them, and whole documents. `documents` reads whole documents as `longctx bench ingest`
does, `ask` is `longctx bench ask`.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from longctx.core.common.device import empty_cache
from longctx.core.measure.bench.gpu_time import seconds
from longctx.core.measure.bench.ingesting import ingest
from longctx.core.measure.bench.reading import full_cache, random_ids, read_chunks
from longctx.core.measure.bench.shapes import Wanted, open_engine
from longctx.core.measure.bench.workbench import sized
from longctx.core.model import narrow
from longctx.core.model.attention import causal_attention_lse
from longctx.core.model.chunk_pass import OWN, VARIABLE
from longctx.core.model.fused_weights import Matrix
from longctx.kernels import choice, door

PARTS = {  # what can be switched off: the kernels' modules
    "sum and norm": ("residual_norm",),
    "gate": ("gated_product",),
    "rotation": ("rotated_chunk",),
    "eviction": ("kept_rows",),
    "merging": ("merged_attention",),
    "experts": ("expert_sum",),
    "bands": ("band_attention",),
}
EVERYTHING = tuple(name for part in PARTS.values() for name in part)
SIZES = {"8k": 8192, "32k": 32768}
CHUNKS = 5  # that are timed, after the caches are full
OTHERS = ("gemma-2-9b", "gpt-oss-20b", "tiny", "llama-3.2-1b", "qwen3-30b-a3b")
STAGES = "kernels,documents,chunk,ask,others,long,before,precision"


class Run:
    """Where results go, and how much time is left."""

    def __init__(self, path: str | None, limit: float):
        self._file = None if path is None else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        self._end = time.monotonic() + limit

    def left(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()

    def tell(self, **fields: Any) -> None:
        """Writes a line."""
        line = json.dumps(fields)
        print(line, flush=True)
        if self._file is not None:
            self._file.write(line + "\n")
            self._file.flush()


@contextmanager
def without(*names: str, own: bool = False) -> Iterator[None]:
    """Inside, these kernels are left to their definitions; `own`: chunks to the model's layers."""
    here = torch.device("cuda", torch.cuda.current_device())
    off = {(name, here): "switched off" for name in names}
    choice.broken.update(off)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = OWN if own else ""
    try:
        yield
    finally:
        os.environ[VARIABLE] = before or ""
        for key in off:
            choice.broken.pop(key, None)


# --- kernels ---


def kernels(run: Run) -> None:
    """Each operation beside its definition, in the sizes of an 8B model."""
    with torch.device("cuda"):
        ours, attention = operations(), attentions()
    for name, call in ours.items():
        kernel = seconds(call, 5)
        with without(*EVERYTHING, "attention_mass"):
            definition = seconds(call, 5)
        run.tell(
            stage="kernels", op=name, ms=kernel * 1e3, definition_ms=definition * 1e3,
            broken={str(k): v for k, v in choice.broken.items()},
        )  # fmt: skip
    for name, call in attention.items():
        run.tell(stage="kernels", op=name, ms=seconds(call, 5) * 1e3)


def operations(T: int = 8192, E: int = 4096) -> dict[str, Callable[[], object]]:
    """Calls by name."""
    x, added, weight = half(T, E), half(T, E), half(E)
    wide, qkv, cached = half(T, 2 * 14336), half(T, 48, 128).transpose(0, 1), half(8, T, 128)
    norm = door.Scaled(weight, 1e-5)
    angles = torch.rand(2 * T, 64).repeat(1, 2)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    mass = torch.rand(8, 2 * T).pow(8)
    q, k, v = qkv[:32], qkv[32:40], qkv[40:]
    index, places = door.heaviest_tokens(mass, T), torch.arange(2 * T).expand(8, -1)
    beside, lse = half(T, 32, 128).transpose(0, 1), torch.randn(32, T)
    experts = torch.randint(32, (4 * T,))
    biases = door.Biases(half(32, 2 * 2880), experts.sort().values)
    clamped = half(4 * T, 2 * 2880), door.Activation(door.CLAMPED, 1.702, 7.0), biases
    summed = half(4 * T, 2880), torch.randperm(4 * T).view(T, 4), half(T, 4)
    found = {
        "sum and norm": lambda: door.residual_norm(x, added, before=norm),
        "norm": lambda: door.residual_norm(x, before=norm),
        "norm of heads": lambda: door.residual_norm(
            q.transpose(0, 1), before=door.Scaled(weight[:128], 1e-5)
        ),
        "gate": lambda: door.gated_product(wide),
        "gate of Gemma": lambda: door.gated_product(wide, door.Activation(door.GELU_TANH)),
        "gate of GPT-OSS": lambda: door.gated_product(*clamped),
        "experts' sum": lambda: door.expert_sum(*summed),
        "merging": lambda: door.merged_attention(beside, lse, beside, lse[:32]),
        "rotation": lambda: door.rotated_chunk(q, k, cached, cos, sin),
        "rows": lambda: door.kept_rows(cached, cached, k, v, places, mass, index),
        "heaviest": lambda: door.heaviest_tokens(mass, T, 256, 256),
    }
    for name, (H, D, window, cap, sinks) in {
        "Gemma 2, window": (16, 256, 4096, 50.0, False),
        "Gemma 2, all": (16, 256, 2 * T, 50.0, False),
        "GPT-OSS, window": (64, 64, 128, None, True),
        "Mistral, window": (32, 128, 4096, None, False),
    }.items():
        S = min(2 * T, T + window)
        queries, keys, values = half(H, T, D), half(8, S, D), half(8, S, D)
        more = min(window, S), cap, half(H) if sinks else None
        found[name] = lambda a=queries, b=keys, c=values, more=more: door.band_attention(
            a, b, c, a.shape[-1] ** -0.5, *more
        )
    last = half(16, 128, 256)
    keys = half(8, 2 * T, 256)
    found["mass of Gemma 2"] = lambda: door.attention_mass(last, keys, 0.06, None, 50.0)
    return found


def attentions(T: int = 8192) -> dict[str, Callable[[], object]]:
    """Attention of a chunk after a cache, with queries and values as they may lie in memory."""
    apart, wide, cached = half(48, T, 128), half(T, 48, 128).transpose(0, 1), half(8, T, 128)
    keys = half(8, 2 * T, 128)
    beside = half(T, 32, 128).transpose(0, 1)
    scale = 128**-0.5
    return {
        "attention, heads apart": lambda: causal_attention_lse(
            apart[:32], keys, (cached, apart[40:]), scale
        ),
        "attention, heads beside one another": lambda: causal_attention_lse(
            beside, keys, (cached, wide[40:]), scale
        ),
    }


def half(*shape: int) -> torch.Tensor:
    """Random numbers in bfloat16."""
    return torch.randn(*shape, dtype=torch.bfloat16)


# --- chunks ---


def chunk(run: Run, shape: str, size: int, each: bool) -> None:
    """Chunks over full caches.

    Args:
        run: where results go.
        shape: of the model.
        size: tokens of chunk and cache.
        each: also without each part by itself.
    """
    engine = open_engine(Wanted(shape=shape, device="cuda"))
    engine.options = sized(engine.options, size, size)
    capped = any(one.softcap or one.sinks is not None for one in engine.decoder.layers)
    everything = (*EVERYTHING, *(["attention_mass"] if capped else []))
    cases: dict[str, dict[str, Any]] = {"all": {}}
    if each:
        cases |= {f"without {name}": {"names": part} for name, part in PARTS.items()}
        cases["model's layers"] = {"own": True}
    cases["before"] = {"own": True, "names": everything}
    cases["all again"] = {}
    for name, off in cases.items():
        if run.left() < 20:
            run.tell(stage="chunk", shape=shape, case=name, left_out=True)
            continue
        torch.cuda.reset_peak_memory_stats()
        with without(*off.get("names", ()), own=off.get("own", False)):
            method = engine.new_method()
            read_chunks(engine, method, full_cache(engine) + 1)
            torch.cuda.synchronize()
            began = time.perf_counter()
            read_chunks(engine, method, CHUNKS)
            host = time.perf_counter() - began
            torch.cuda.synchronize()
            spent = (time.perf_counter() - began) / CHUNKS
        run.tell(
            stage="chunk", shape=shape, size=size, case=name, ms=spent * 1e3,
            host_ms=host / CHUNKS * 1e3, tokens_per_s=size / spent,
            peak_gib=torch.cuda.max_memory_allocated() / 2**30,
            fused=engine.decoder.chunk_pass() is not None,
        )  # fmt: skip
    if run.left() > 20:
        profile(run, engine, shape, size)
    del engine, method
    gc.collect()
    empty_cache("cuda")


def profile(run: Run, engine, shape: str, size: int) -> None:
    """What the GPU does in one chunk."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    method = engine.new_method()
    read_chunks(engine, method, full_cache(engine))
    ids = random_ids(size, engine.files.config.vocab_size)
    with watch(activities=[ProfilerActivity.CUDA]) as found:
        engine.reader.read(ids, method, method.depth)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    for row in rows[:30]:
        run.tell(
            stage="profile", shape=shape, kernel=row.key[:90], calls=row.count,
            ms=row.self_device_time_total / 1e3,
        )  # fmt: skip


def precision(run: Run, size: int, tokens: list[int]) -> None:
    """Reading in fp8 beside bf16, in the same run."""
    with torch.device("cuda"):
        for name, ours, other in products(size):
            run.tell(stage="precision", op=name, fp8_ms=seconds(ours, 5) * 1e3,
                     bf16_ms=seconds(other, 5) * 1e3)  # fmt: skip
    run.tell(stage="precision", broken={str(k): v for k, v in choice.broken.items()})
    for number in (narrow.FULL, narrow.NAME):
        documents(run, size, tokens, False, number)
    engine = open_engine(Wanted(device="cuda", precision=narrow.NAME))
    engine.options = sized(engine.options, size, size)
    profile(run, engine, "llama-3.1-8b", size)
    del engine
    gc.collect()
    empty_cache("cuda")


def products(T: int, E: int = 4096, inner: int = 14336) -> Iterator[tuple]:
    """Names, and calls in eight bits and in bf16, in the sizes of an 8B model."""
    x, added, norm = half(T, E), half(T, E), door.Scaled(half(E), 1e-5)
    wide = half(T, 2 * inner)
    yield "rows", lambda: door.row_scaled(x), lambda: x.clone()
    yield (
        "sum and norm",
        lambda: door.residual_row_scaled(x, added, None, 1.0, norm),
        lambda: door.residual_norm(x, added, before=norm),
    )
    yield "gate", lambda: door.gated_row_scaled(wide), lambda: door.gated_product(wide)
    shapes = {"qkv": (E, 6144), "out": (E, E), "gate and up": (E, 2 * inner), "down": (inner, E)}
    for name, (into, out) in shapes.items():
        states, matrix = half(T, into), Matrix(half(out, into), None)
        rows, made = door.row_scaled(states), narrow.narrowed(matrix)
        yield (
            f"product: {name}",
            lambda rows=rows, made=made: narrow.scaled_product(rows, made),
            lambda x=states, w=matrix.weight: torch.nn.functional.linear(x, w),
        )


def documents(
    run: Run, size: int, tokens: list[int], before: bool, precision: str | None = None
) -> None:
    """Whole documents, with the state written."""
    with without(*(EVERYTHING if before else ()), own=before):
        wanted = Wanted(device="cuda", precision=precision)
        report = ingest(wanted, tokens, [(size, size)], on_note=print)
    for one in report.readings:
        run.tell(
            stage="documents", before=before, precision=precision or narrow.FULL, size=size,
            tokens=one.tokens, seconds=one.seconds,
            tokens_per_s=one.tokens_per_s, over_floor=one.over_floor, floor_s=one.floor.seconds,
            peak_gib=(one.peak_memory or 0) / 2**30, processor=report.machine.processor,
        )  # fmt: skip
    gc.collect()
    empty_cache("cuda")


def asking(run: Run) -> None:
    """Questions to a document of a million tokens."""
    from longctx.core.measure.bench.answering import ask

    report = ask(Wanted(device="cuda"), [1048576], [(SIZES["8k"], SIZES["8k"])], gather=8192)
    for one in report.answers:
        run.tell(
            stage="ask", cache=one.cache, by=one.gathered_by, open_s=one.open_s,
            gather_s=one.gather_s, first_token_s=one.first_token_s,
            decode_tokens_per_s=one.decode_tokens_per_s,
        )  # fmt: skip
    gc.collect()
    empty_cache("cuda")


def main() -> None:
    """Runs the stages in order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stages", default=STAGES)
    parser.add_argument("--limit", type=float, default=500, help="seconds")
    parser.add_argument("--out", default=None, help="file for the lines")
    given = parser.parse_args()
    run = Run(given.out, given.limit)
    stages: dict[str, tuple[float, Callable[[], None]]] = {
        "kernels": (40, lambda: kernels(run)),
        "chunk": (60, lambda: chunk(run, "llama-3.1-8b", SIZES["8k"], True)),
        "documents": (75, lambda: documents(run, SIZES["8k"], [131072, 1048576], False)),
        "precision": (150, lambda: precision(run, SIZES["8k"], [131072, 1048576])),
        "ask": (60, lambda: asking(run)),
        "others": (60, lambda: [chunk(run, one, SIZES["8k"], False) for one in OTHERS] and None),
        "before": (80, lambda: documents(run, SIZES["8k"], [131072, 1048576], True)),
        "long": (100, lambda: documents(run, SIZES["32k"], [131072, 1048576], False)),
    }
    for name in given.stages.split(","):
        least, stage = stages[name]
        if run.left() < least:
            run.tell(stage=name, left_out=True)
            continue
        began = time.monotonic()
        try:
            stage()
        except Exception as error:  # the other stages are worth having
            run.tell(stage=name, failed=f"{type(error).__name__}: {error}"[:500])
        run.tell(stage=name, took=time.monotonic() - began, left=run.left())


if __name__ == "__main__":
    main()
