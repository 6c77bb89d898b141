"""The kernels that decode one token on this GPU, with Llama-3.1-8B's sizes, beside a copy's speed.

    python docs/evaluation/decode_kernels.py

Prints JSON. Calls go in turn over buffers that together are larger than the cache; times are of the
GPU alone (`core/measure/bench/gpu_time.py`).
"""

import json
from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor

from longctx.core.measure.bench.gpu_time import seconds
from longctx.kernels.door import (
    PAGE,
    Store,
    append_rotated,
    best_tokens,
    cached_attention,
    matvec,
    page_scores,
    paged_attention,
    top_pages,
)

H, G, D, E, MLP, VOCABULARY = 32, 8, 128, 4096, 14336, 128256
ENTRIES, PAGES, CHOSEN = (8192, 32768, 131072), (2048, 8192, 32768), 256
LARGE = 300_000_000  # bytes over which a cache of 50 MB is no help
HALF = {"dtype": torch.bfloat16, "device": "cuda"}


def timed(call: Callable[..., object], make: Callable[[], tuple], size: int, copy: float) -> dict:
    """One call's time.

    Args:
        call: the operation.
        make: gives what it is called with, new each time.
        size: bytes that it must read.
        copy: bytes a second that a copy reads and writes.
    """
    given = cycle([make() for _ in range(max(2, min(100, LARGE // size)))])
    spent = seconds(lambda: call(*next(given)), 40)
    return {"µs": spent * 1e6, "of a copy's bandwidth": size / spent / copy}


def matrices(copy: float) -> dict:
    """A layer's four products, and the head's."""
    sizes = {"qkv": (6144, E), "output": (E, E), "down": (E, MLP), "head": (VOCABULARY, E)}
    found = {
        name: timed(matvec, lambda K=K, N=N: (_half(K), _half(N, K)), 2 * N * K, copy)
        for name, (N, K) in sizes.items()
    }

    def gated() -> tuple:
        return _half(E), _half(2 * MLP, E), None, _half(E), 1e-5, None, True

    return {**found, "gate and up": timed(matvec, gated, 4 * MLP * E, copy)}


def attention(n: int, copy: float) -> dict:
    """One token's attention to so many entries, and the tokens that it wants most."""
    q, count = _half(H, 1, D), torch.tensor([n], device="cuda")
    whole = timed(
        cached_attention,
        lambda: (q, _half(G, n, D), _half(G, n, D), count, D**-0.5),
        4 * G * n * D,
        copy,
    )
    weights = torch.rand(G, n, device="cuda")
    best = timed(best_tokens, lambda: (weights.clone(), count, 4096, 7), 4 * G * n, copy)
    return {"cached_attention": whole, "best_tokens": best}


def pages(n: int, copy: float) -> dict:
    """Bounds of so many pages, the best of them, and one token's attention to these."""
    q, filled = _half(H, 1, D), torch.full((G, n), PAGE, dtype=torch.int32, device="cuda")
    keys, values = _half(G, n * PAGE, D), _half(G, n * PAGE, D)

    def lists() -> Tensor:
        return torch.stack([torch.randperm(n, device="cuda")[:CHOSEN] for _ in range(G)])

    def scored() -> tuple:
        return q, _half(G, n, D), _half(G, n, D), filled, D**-0.5

    def attended() -> tuple:
        return q, keys, values, filled, lists().sort().values, D**-0.5

    def ranked() -> tuple:
        return torch.rand(G, n, device="cuda"), CHOSEN

    size = 4 * G * CHOSEN * PAGE * D
    return {
        "page_scores": timed(page_scores, scored, 4 * G * n * D, copy),
        "top_pages": timed(top_pages, ranked, 4 * G * n, copy),
        "paged_attention": timed(paged_attention, attended, size, copy),
    }


def appended(copy: float) -> dict:
    """One token on its way to a cache."""
    place, tables = torch.tensor([77], device="cuda"), (_half(1024, D), _half(1024, D))

    def given() -> tuple:
        store = Store(_half(G, 8192, D), _half(G, 8192, D), place)
        return _half(H, 1, D), _half(G, 1, D), _half(G, 1, D), place, *tables, [store]

    return timed(append_rotated, given, 100_000_000, copy)


def _half(*shape: int) -> Tensor:
    return torch.randn(*shape, **HALF)


def main() -> None:
    """Measures and prints."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * source.numel() / seconds(lambda: target.copy_(source))
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy GB/s": copy / 1e9,
        "matvec": matrices(copy),
        "append_rotated µs": appended(copy)["µs"],
        "entries": {f"{n:,}": attention(n, copy) for n in ENTRIES},
        "pages": {f"{n:,}": pages(n, copy) for n in PAGES},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
