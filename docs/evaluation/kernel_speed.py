"""The kernels on this GPU, against their bars, with Llama-3.1-8B's heads.

    python docs/evaluation/kernel_speed.py                      # all, or: reading, scan, decoding
    python docs/evaluation/kernel_speed.py scan --keys DOCUMENT.txt --tokens 30000 --every 4

Prints JSON. Times are of the GPU alone (`core/measure/bench/gpu_time.py`), beside a copy and a
matrix product in the same run; without a GPU there are none. Kernels that decode one token are
called in turn over buffers that together are larger than the cache.

With --keys the bundled model reads a document over a window of recent tokens, and each chunk of 512
queries is scanned over all keys before it, on a CPU too. ReAttention's published kernel offers a
query only the best key of every 128; what it loses of the exact top 4 are the keys that share their
128 with a better one.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

import torch
import triton
from torch import Tensor

from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.measure.bench.baselines import Recent
from longctx.core.measure.bench.gpu_time import seconds
from longctx.core.model.adapter import Layer
from longctx.core.model.attention import causal_attention_lse
from longctx.kernels import (
    attention_mass,
    door,
    fused_attention,
    maxsim_windows,
    maxsim_windows_ref,
    selected_attention,
    similarity_max,
    span_boxes,
    span_boxes_ref,
    window_attention,
    window_attention_ref,
)
from longctx.kernels.topk_scan_ref import RUN, merge

H, G, D, E, MLP, VOCABULARY = 32, 8, 128, 4096, 14336, 128256
BAR = 0.70  # share of a copy's bandwidth

# Reading: attention, and retrieval among a million tokens.
CHUNKS = {"8k after 8k": (8192, 8192), "32k after 32k": (32768, 32768)}
MASS_QUERIES, MASS_BAR = 128, 0.05  # the last queries; share of the time of attention
TOKENS, HEADS, REACH = 1_000_000, 4, 64
QUESTIONS = (1, 8, 16, 32, 64, 256)  # words
UNIT, CHECKED = maxsim_windows_ref.UNIT, 512  # CHECKED: units that are compared, at each end
BLOCK, THRESHOLD = 128, 0.3  # tokens of a block; what is taken off an entry, summed over heads
KEPT, SELECTED, SPAN, LISTS = 262_144, 8192, 32, 8  # eight lists' rows are more than a cache holds

# The top-k scan.
SIZES = {"64k": 1 << 16, "256k": 1 << 18, "1M": 1 << 20}
IN_WINDOW = 7900  # tokens of ReAttention's window, of 8,192 at most
QUERIES, K, SCAN_BAR = 512, 4, 0.60  # the bar: share of a matrix product
AT_ONCE = 1 << 15  # keys at once of what PyTorch does
CHUNK, WINDOW = 512, 2048  # tokens read at a time, and kept

# Decoding one token.
ENTRIES, PAGES, CHOSEN = (8192, 32768, 131072), (2048, 8192, 32768), 256
LARGE = 300_000_000  # bytes over which a cache of 50 MB is no help


class Ceilings:
    """What this GPU can do at most; figures are given beside it.

    Attributes:
        copy: bytes a second that a copy reads and writes.
        product: operations a second of a bfloat16 product of 8,192³.
    """

    def __init__(self) -> None:
        source = torch.empty(1 << 30, dtype=torch.uint8)
        target = torch.empty_like(source)
        self.copy = 2 * source.numel() / seconds(lambda: target.copy_(source))
        a, b = half(2, 8192, 8192).unbind()
        product = torch.empty_like(a)
        self.product = 2 * 8192**3 / seconds(lambda: torch.mm(a, b, out=product), 10)

    def of_copy(self, size: int, spent: float) -> dict:
        """A call that must read so many bytes, and took so many seconds."""
        rate = size / spent
        return {
            "µs": spent * 1e6,
            "GB/s": rate / 1e9,
            "of a copy's bandwidth": rate / self.copy,
            "meets the bar": rate >= BAR * self.copy,
        }

    def timed(self, call: Callable[..., object], make: Callable[[], tuple], size: int) -> dict:
        """A call over buffers in turn.

        Args:
            call: the operation.
            make: gives what it is called with, new each time.
            size: bytes that it must read.
        """
        given = cycle([make() for _ in range(max(2, min(100, LARGE // size)))])
        return self.of_copy(size, seconds(lambda: call(*next(given)), 40))


def half(*shape: int) -> Tensor:
    """Random numbers in bfloat16."""
    return torch.randn(*shape, dtype=torch.bfloat16)


# --- reading and retrieval ---


def reading(ceilings: Ceilings) -> dict:
    """Attention with its mass, and the operations that retrieve."""
    return {
        "similarity": {f"{n} words": similarity(n, ceilings) for n in QUESTIONS},
        "windows": {f"{n} words": windows(n, TOKENS, ceilings) for n in QUESTIONS},
        "windows of files of 1,000": {f"{n} words": windows(n, 1000, ceilings) for n in QUESTIONS},
        "selected attention": {f"{n}-bit keys": selected(n, ceilings) for n in (16, 8)},
        "span boxes": {f"{n} blocks": spans(n) for n in (1, 4)},
        "attention": {name: attention(*sizes) for name, sizes in CHUNKS.items()},
    }


def attention(T: int, C: int) -> dict:
    """Two-part attention by each operator, and the mass of its last queries."""
    q, (k, v) = half(H, T, D), half(2, G, C + T, D).unbind()
    flop, scale, found = 4 * H * D * (T * C + T * T / 2), D**-0.5, {}
    for operator in (fused_attention.cudnn, fused_attention.flash):
        with patch.object(fused_attention, "operators", lambda q, k, one=operator: [one]):
            _, lse = causal_attention_lse(q, k, v, scale)
            if lse is not None:  # else it does not run here
                spent = seconds(partial(causal_attention_lse, q, k, v, scale), 3)
                found[operator.__name__] = {"ms": spent * 1e3, "TFLOP/s": flop / spent / 1e12}
    _, lse = causal_attention_lse(q, k, v, scale)
    last, lse = q[:, -MASS_QUERIES:], lse[:, -MASS_QUERIES:]
    best = min(result["ms"] for result in found.values())
    for name, given in (("mass", lse), ("mass without log-sum-exps", None)):
        ms = seconds(partial(attention_mass.attention_mass, last, k, scale, given)) * 1e3
        found[name] = {"ms": ms, "of attention": ms / best, "meets the bar": ms < MASS_BAR * best}
    return found


def embeddings(n: int) -> tuple[Tensor, Tensor]:
    """Random vectors and scales of so many tokens."""
    vectors = torch.randint(-127, 128, (n, HEADS, D), dtype=torch.int8)
    return vectors, torch.rand(n, HEADS, dtype=torch.float16) / 127


def similarity(question: int, ceilings: Ceilings) -> dict:
    """The search over a million tokens for a question of so many."""
    given = (*embeddings(TOKENS), *embeddings(question))
    spent = seconds(partial(similarity_max.similarity_max, *given))
    raw = similarity_max.similarity_max(*given)
    sliding = seconds(partial(similarity_max.sliding_max, raw, REACH))
    size = TOKENS * (HEADS * (D + 2) + 4)
    return {**ceilings.of_copy(size, spent), "sliding maximum µs": sliding * 1e6}


def windows(question: int, file: int, ceilings: Ceilings) -> dict:
    """Best cosines in units of a million tokens, of files of so many tokens each, checked."""
    within = torch.arange(0, file, UNIT)
    starts = (torch.arange(0, TOKENS, file)[:, None] + within).flatten()
    starts = torch.cat((starts[starts < TOKENS], starts.new_tensor([TOKENS])))
    given = (*embeddings(TOKENS), *embeddings(question), starts)
    best = maxsim_windows.maxsim_windows(*given)
    rows = [x.cpu() for x in given]
    for first in (0, len(best) - CHECKED):
        bounds = rows[4][first : first + CHECKED + 1]
        with torch.device("cpu"):
            expected = maxsim_windows_ref.maxsim_windows.definition(*rows[:4], bounds)
        if not torch.equal(best[first : first + CHECKED].cpu(), expected):
            raise SystemExit(f"maxsim_windows is not its definition for {question} words")
    spent = seconds(partial(maxsim_windows.maxsim_windows, *given))
    size = TOKENS * HEADS * (D + 2) + 4 * best.numel() + 8 * len(starts)
    return ceilings.of_copy(size, spent)


def selected(bits: int, ceilings: Ceilings) -> dict:
    """One token's attention to lists of spans, one list after the other; keys of so many bits."""
    keys, values = half(2, KEPT, G, D).unbind()
    q, scales = half(H, 1, D), None
    cos, sin = torch.rand(2, SELECTED, D, dtype=torch.bfloat16).unbind()
    total = torch.tensor([SELECTED])
    if bits == 8:
        keys = (keys * 30).to(torch.int8)
        scales = torch.rand(KEPT, G, dtype=torch.float16)
    chosen = torch.randperm(KEPT // SPAN).view(-1, SELECTED // SPAN)[:LISTS]
    within = torch.arange(SPAN)
    lists = [(s.sort().values[:, None] * SPAN + within).flatten() for s in chosen]

    def each() -> None:
        for index in lists:
            selected_attention.selected_attention(
                q, keys, values, index, total, D**-0.5, cos, sin, scales
            )

    size = SELECTED * G * (D * (keys.element_size() + 2) + (2 if bits == 8 else 0))
    copy = {"a copy of as many bytes, µs": copied(size) * 1e6}
    return ceilings.of_copy(size, seconds(each, 3) / LISTS) | copy


def copied(size: int) -> float:
    """Seconds of a copy that reads and writes so many bytes in all, of several places in turn.

    It starts and ends like any kernel, which a copy of a gigabyte does not show.
    """
    source, target = torch.empty(2, LISTS, size // 2, dtype=torch.uint8).unbind()

    def each() -> None:
        for one, other in zip(source, target, strict=True):
            other.copy_(one)

    return seconds(each, 3) / LISTS


def spans(blocks: int) -> dict:
    """The best spans of so many blocks by their attention maps, beside the definition."""
    logits = torch.randn(blocks, H, BLOCK, BLOCK)
    above = torch.ones(BLOCK, BLOCK, dtype=torch.bool).triu(1)
    summed = logits.masked_fill(above, -torch.inf).softmax(-1).sum(1)
    given = summed, torch.full((blocks,), THRESHOLD)
    by = {"µs": span_boxes.span_boxes, "definition µs": span_boxes_ref.span_boxes.definition}
    return {unit: seconds(partial(one, *given)) * 1e6 for unit, one in by.items()}


# --- the top-k scan ---


def scan(ceilings: Ceilings) -> dict:
    """512 queries, and one, over keys in bfloat16 and int8, and by PyTorch's own operators.

    And their attention to the window that comes of it.
    """
    found = {"window": window()}
    for T in (QUERIES, 1):
        found[f"{T} queries"] = {name: scanned(T, N, ceilings) for name, N in SIZES.items()}
    return found


def window() -> dict:
    """A chunk's attention to a window whose length only the device knows, by the kernel and not."""
    q, (k, v) = half(QUERIES, H, D).transpose(0, 1), half(2, IN_WINDOW + 300, G, D).unbind()
    flop, total = 4 * H * D * QUERIES * (IN_WINDOW - QUERIES / 2), torch.tensor([IN_WINDOW])
    ways = {
        "kernel": window_attention.window_attention,
        "flash attention of varying lengths": window_attention_ref.flash,
    }
    found = {}
    for name, way in ways.items():
        spent = seconds(partial(way, q, k, v, D**-0.5, total), 20)
        found[name] = {"µs": spent * 1e6, "TFLOP/s": flop / spent / 1e12}
    return found


def scanned(T: int, N: int, ceilings: Ceilings) -> dict:
    """T queries over N keys."""
    q, keys = half(H, T, D), half(N, G, D)
    small = torch.randint(-127, 128, (N, G, D), dtype=torch.int8)
    scales = torch.rand(N, G).half() / 127
    repeats, found = max(1, (1 << 20) // N) * (10 if T == 1 else 1), {}
    for name, call, size in (
        ("bfloat16", partial(door.topk_scan, q, keys, K), keys.nbytes),
        ("int8", partial(door.topk_scan, q, small, K, scales), small.nbytes + scales.nbytes),
        ("PyTorch", partial(in_torch, q, keys), keys.nbytes),
    ):
        spent = seconds(call, repeats)
        share = 2 * H * T * N * D / spent / ceilings.product
        found[name] = ceilings.of_copy(size, spent)
        if T > 1:
            found[name] = {
                "ms": spent * 1e3,
                "TFLOP/s": share * ceilings.product / 1e12,
                "of a matrix product": share,
                "meets the bar": share >= SCAN_BAR,
            }
    return found


def in_torch(q: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """What PyTorch's own operators do: products in blocks of keys, and `topk` of each."""
    grouped, best = q.view(G, -1, D), None
    for start in range(0, len(keys), AT_ONCE):
        logits = grouped @ keys[start : start + AT_ONCE].permute(1, 2, 0)
        scores, index = logits.topk(K, dim=-1)
        found = scores, index + start
        best = found if best is None else merge(best, found, K)
    return best


class Watch(Recent):
    """A window of recent tokens that keeps every position-free key and counts what rules lose.

    Args:
        every: chunks of which one is scanned.
    """

    def __init__(self, every: int):
        super().__init__(WINDOW)
        self._every, self._chunk = every, 0
        self._keys: dict[int, list[Tensor]] = {}
        self.lost: dict[int, int] = {}
        self.chosen: dict[int, int] = {}

    def attend(self, layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scans all keys before this chunk; then see `Recent.attend`."""
        earlier = self._keys.setdefault(layer.index, [])
        if earlier and self._chunk % self._every == 0:
            self._count(layer.index, door.topk_scan(q, torch.cat(earlier), K).keys)
        earlier.append(k.transpose(0, 1).contiguous())  # (T, G, D)
        return super().attend(layer, q, k, v)

    def go_on(self) -> None:
        """Goes on to the next chunk."""
        self._chunk += 1

    def _count(self, layer: int, index: Tensor) -> None:
        """A key is not offered where a better one of its run is among the best; index (H, T, n)."""
        runs = index // RUN
        same = runs[..., :, None] == runs[..., None, :]  # (H, T, n, n)
        lost = same.tril(-1).any(dim=-1)
        self.lost[layer] = self.lost.get(layer, 0) + int(lost.sum())
        self.chosen[layer] = self.chosen.get(layer, 0) + lost.numel()


def recall(path: Path, count: int, every: int) -> dict:
    """The share of the exact top 4 that one candidate for every 128 keys loses."""
    engine = prepare(Setup())
    text = path.read_text("utf-8")[: 8 * count]
    ids = engine.files.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    ids, watch = torch.tensor(ids[:count]), Watch(every)
    for chunk in ids.split(CHUNK):
        engine.decoder.read(chunk, watch)
        watch.go_on()
    lost = {layer: watch.lost[layer] / n for layer, n in watch.chosen.items()}
    total = sum(watch.lost.values()) / sum(watch.chosen.values())
    return {"tokens": len(ids), "every": every, "lost by layer": lost, "lost": total}


# --- decoding one token ---


def decoding(ceilings: Ceilings) -> dict:
    """Products with the weights, one token on its way to a cache, and its attention to it."""
    place, tables = torch.tensor([77]), (half(1024, D), half(1024, D))

    def appended() -> tuple:
        store = door.Store(half(G, 8192, D), half(G, 8192, D), place)
        return half(H, 1, D), half(G, 1, D), half(G, 1, D), place, *tables, [store]

    appending = ceilings.timed(door.append_rotated, appended, 100_000_000)
    return {
        "matvec": matrices(ceilings),
        "append_rotated µs": appending["µs"],
        "entries": {f"{n:,}": entries(n, ceilings) for n in ENTRIES},
        "pages": {f"{n:,}": pages(n, ceilings) for n in PAGES},
    }


def matrices(ceilings: Ceilings) -> dict:
    """A layer's four products, and the head's."""
    sizes = {"qkv": (6144, E), "output": (E, E), "down": (E, MLP), "head": (VOCABULARY, E)}
    found = {
        name: ceilings.timed(door.matvec, lambda i=i, o=o: (half(i), half(o, i)), 2 * o * i)
        for name, (o, i) in sizes.items()
    }

    def gated() -> tuple:
        return half(E), half(2 * MLP, E), None, half(E), 1e-5, None, True

    return {**found, "gate and up": ceilings.timed(door.matvec, gated, 4 * MLP * E)}


def entries(n: int, ceilings: Ceilings) -> dict:
    """One token's attention to so many entries, and the tokens that it wants most."""
    q, count, weights = half(H, 1, D), torch.tensor([n]), torch.rand(G, n)

    def whole() -> tuple:
        return q, half(G, n, D), half(G, n, D), count, D**-0.5

    def wanted() -> tuple:
        return weights.clone(), count, 4096, 7

    return {
        "cached_attention": ceilings.timed(door.cached_attention, whole, 4 * G * n * D),
        "best_tokens": ceilings.timed(door.best_tokens, wanted, 4 * G * n),
    }


def pages(n: int, ceilings: Ceilings) -> dict:
    """Bounds of so many pages, the best of them, and one token's attention to these."""
    q, filled = half(H, 1, D), torch.full((G, n), door.PAGE, dtype=torch.int32)
    keys, values = half(G, n * door.PAGE, D), half(G, n * door.PAGE, D)

    def scored() -> tuple:
        return q, half(G, n, D), half(G, n, D), filled, D**-0.5

    def ranked() -> tuple:
        return torch.rand(G, n), CHOSEN

    def attended() -> tuple:
        lists = torch.stack([torch.randperm(n)[:CHOSEN] for _ in range(G)])
        return q, keys, values, filled, lists.sort().values, D**-0.5

    size = 4 * G * CHOSEN * door.PAGE * D
    return {
        "page_scores": ceilings.timed(door.page_scores, scored, 4 * G * n * D),
        "top_pages": ceilings.timed(door.top_pages, ranked, 4 * G * n),
        "paged_attention": ceilings.timed(door.paged_attention, attended, size),
    }


PARTS = {"reading": reading, "scan": scan, "decoding": decoding}


def measured(parts: list[str]) -> dict:
    """What is measured on the GPU."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        ceilings = Ceilings()
        return {
            "device": torch.cuda.get_device_name(),
            "triton": triton.__version__,
            "copy GB/s": ceilings.copy / 1e9,
            "matrix product TFLOP/s": ceilings.product / 1e12,
            **{name: PARTS[name](ceilings) for name in parts},
        }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--keys", type=Path, help="a text to read for what the rule loses")
    parser.add_argument("--tokens", type=int, default=30000, help="of it")
    parser.add_argument("--every", type=int, default=1, help="scan one chunk of so many")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    report: dict = {"torch": torch.__version__}
    if torch.cuda.is_available():
        report |= measured(options.parts or list(PARTS))
    if options.keys:
        report["one candidate for every 128 keys"] = recall(
            options.keys, options.tokens, options.every
        )
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
