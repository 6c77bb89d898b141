"""The kernels and fused attention on this GPU, against their bars, with Llama-3.1-8B's heads.

    python docs/evaluation/kernel_speed.py

Prints JSON. Times are of the GPU alone (`core/measure/bench/gpu_time.py`).
"""

import json
from functools import partial
from unittest.mock import patch

import torch
import triton

from longctx.core.measure.bench.gpu_time import seconds
from longctx.core.model.attention import causal_attention_lse
from longctx.kernels import (
    attention_mass,
    fused_attention,
    maxsim_windows,
    maxsim_windows_ref,
    selected_attention,
    similarity_max,
    span_boxes,
    span_boxes_ref,
)

H, G, D, QUERIES = 32, 8, 128, 128
CHUNKS = {"8k after 8k": (8192, 8192), "32k after 32k": (32768, 32768)}
TOKENS, HEADS, REACH = 1_000_000, 4, 64
QUESTIONS = (1, 8, 32, 64, 256)  # words
UNIT, CHECKED = maxsim_windows_ref.UNIT, 512  # CHECKED: units that are compared, at each end
BLOCK, THRESHOLD = 128, 0.3  # tokens of a block; what is taken off an entry, summed over heads
KEPT, SELECTED, SPAN, LISTS = 262_144, 8192, 32, 8  # eight lists' rows are more than a cache holds
BAR_MASS, BAR_BANDWIDTH = 0.05, 0.70


def attention(T: int, C: int) -> dict:
    """Two-part attention by each operator, and the mass of its last queries."""
    q = torch.randn(H, T, D, dtype=torch.bfloat16, device="cuda")
    k, v = torch.randn(2, G, C + T, D, dtype=torch.bfloat16, device="cuda").unbind()
    flop, scale, found = 4 * H * D * (T * C + T * T / 2), D**-0.5, {}
    for operator in (fused_attention.cudnn, fused_attention.flash):
        with patch.object(fused_attention, "operators", lambda q, k, one=operator: [one]):
            _, lse = causal_attention_lse(q, k, v, scale)
            if lse is not None:  # else it does not run here
                spent = seconds(partial(causal_attention_lse, q, k, v, scale), 3)
                found[operator.__name__] = {"ms": spent * 1e3, "TFLOP/s": flop / spent / 1e12}
    _, lse = causal_attention_lse(q, k, v, scale)
    last, lse = q[:, -QUERIES:], lse[:, -QUERIES:]
    best = min(result["ms"] for result in found.values())
    for name, given in (("mass", lse), ("mass without log-sum-exps", None)):
        ms = seconds(partial(attention_mass.attention_mass, last, k, scale, given)) * 1e3
        found[name] = {"ms": ms, "of attention": ms / best, "meets the bar": ms < BAR_MASS * best}
    return found


def copy_bandwidth() -> float:
    """Bytes a second read and written by a copy."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source))


def embeddings(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random vectors and scales of so many tokens."""
    vectors = torch.randint(-127, 128, (n, HEADS, D), dtype=torch.int8, device="cuda")
    return vectors, torch.rand(n, HEADS, dtype=torch.float16, device="cuda") / 127


def similarity(question: int, bandwidth: float) -> dict:
    """The search over a million tokens for a question of so many."""
    given = (*embeddings(TOKENS), *embeddings(question))
    spent = seconds(partial(similarity_max.similarity_max, *given))
    raw = similarity_max.similarity_max(*given)
    rate = TOKENS * (HEADS * (D + 2) + 4) / spent
    return {
        "ms": spent * 1e3,
        "GB/s": rate / 1e9,
        "of a copy's bandwidth": rate / bandwidth,
        "meets the bar": rate >= BAR_BANDWIDTH * bandwidth,
        "sliding maximum ms": seconds(partial(similarity_max.sliding_max, raw, REACH)) * 1e3,
    }


def windows(question: int, file: int, bandwidth: float) -> dict:
    """Best cosines in units of a million tokens, of files of so many tokens each, checked."""
    within = torch.arange(0, file, UNIT, device="cuda")
    starts = (torch.arange(0, TOKENS, file, device="cuda")[:, None] + within).flatten()
    starts = torch.cat((starts[starts < TOKENS], starts.new_tensor([TOKENS])))
    given = (*embeddings(TOKENS), *embeddings(question), starts)
    best = maxsim_windows.maxsim_windows(*given)
    rows = [x.cpu() for x in given]
    for first in (0, len(best) - CHECKED):
        bounds = rows[4][first : first + CHECKED + 1]
        expected = maxsim_windows_ref.maxsim_windows(*rows[:4], bounds)
        if not torch.equal(best[first : first + CHECKED].cpu(), expected):
            raise SystemExit(f"maxsim_windows is not its definition for {question} words")
    spent = seconds(partial(maxsim_windows.maxsim_windows, *given))
    rate = (TOKENS * HEADS * (D + 2) + 4 * best.numel() + 8 * len(starts)) / spent
    return {
        "ms": spent * 1e3,
        "GB/s": rate / 1e9,
        "of a copy's bandwidth": rate / bandwidth,
        "meets the bar": rate >= BAR_BANDWIDTH * bandwidth,
    }


def selected(bits: int, bandwidth: float) -> dict:
    """One token's attention to lists of spans, one list after the other; keys of so many bits."""
    keys, values = torch.randn(2, KEPT, G, D, dtype=torch.bfloat16, device="cuda").unbind()
    q = torch.randn(H, 1, D, dtype=torch.bfloat16, device="cuda")
    cos, sin = torch.rand(2, SELECTED, D, dtype=torch.bfloat16, device="cuda").unbind()
    total, scales = torch.tensor([SELECTED], device="cuda"), None
    if bits == 8:
        keys = (keys * 30).to(torch.int8)
        scales = torch.rand(KEPT, G, dtype=torch.float16, device="cuda")
    spans = torch.randperm(KEPT // SPAN, device="cuda").view(-1, SELECTED // SPAN)[:LISTS]
    within = torch.arange(SPAN, device="cuda")
    lists = [(s.sort().values[:, None] * SPAN + within).flatten() for s in spans]

    def each() -> None:
        for index in lists:
            selected_attention.selected_attention(
                q, keys, values, index, total, D**-0.5, cos, sin, scales
            )

    spent = seconds(each, 3) / LISTS
    row = D * (keys.element_size() + 2) + (2 if bits == 8 else 0)
    rate = SELECTED * G * row / spent
    return {
        "µs": spent * 1e6,
        "GB/s": rate / 1e9,
        "of a copy's bandwidth": rate / bandwidth,
        "meets the bar": rate >= BAR_BANDWIDTH * bandwidth,
    }


def spans(blocks: int) -> dict:
    """The best spans of so many blocks by their attention maps, beside the definition."""
    logits = torch.randn(blocks, H, BLOCK, BLOCK, device="cuda")
    above = torch.ones(BLOCK, BLOCK, dtype=torch.bool, device="cuda").triu(1)
    summed = logits.masked_fill(above, -torch.inf).softmax(-1).sum(1)
    given = summed, torch.full((blocks,), THRESHOLD, device="cuda")
    by = {"µs": span_boxes, "definition µs": span_boxes_ref}
    return {unit: seconds(partial(one.span_boxes, *given)) * 1e6 for unit, one in by.items()}


def main() -> None:
    """Measures and prints."""
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy GB/s": bandwidth / 1e9,
        "similarity": {f"{n} words": similarity(n, bandwidth) for n in (1, 16, 32, 64, 256)},
        "windows": {f"{n} words": windows(n, TOKENS, bandwidth) for n in QUESTIONS},
        "windows of files of 1,000": {f"{n} words": windows(n, 1000, bandwidth) for n in QUESTIONS},
        "selected attention": {f"{n}-bit keys": selected(n, bandwidth) for n in (16, 8)},
        "span boxes": {f"{n} blocks": spans(n) for n in (1, 4)},
        "attention": {name: attention(*sizes) for name, sizes in CHUNKS.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
