"""Best int8 cosine of each token with any question token, and its sliding maximum, in Triton.

Tokens are read once for up to 64 question tokens; dot products are exact int32, and the float
operations of `similarity_max_ref.py` run in the same order, unfused, so that bits are equal too.
"""

import torch
from torch import Tensor

from longctx.kernels.launch import tl, triton

# A float32 whose last bits count whole numbers: with it as the start of an int32 sum, the sum's
# bits are that float plus the sum, which saves a conversion, half as fast as a sum.
START, START_BITS = tl.constexpr(12582912.0), tl.constexpr(0x4B400000)
COUNTED = 256  # entries of a head whose products it can count: 128 * 128 * 256 <= 2**22
WORDS = 64  # question tokens at a time
FAN = 8  # entries of one level of the sliding maximum that make one of the next


def refusal(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> str | None:
    """Why the kernel does not compute this; None if it does."""
    dtypes = (vectors.dtype, query.dtype, scales.dtype, query_scales.dtype)
    if dtypes != (torch.int8, torch.int8, torch.float16, torch.float16):
        return f"it takes no {', '.join(map(str, dtypes))}"
    if not len(query):
        return "there are no question tokens"
    if vectors.shape[-1] > 1024:
        return f"{vectors.shape[-1]} entries of a head are over 1024"
    return None


def similarity_max(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> Tensor:
    """As defined, with the bits of the definition on a CPU."""
    (n, heads, D), T = vectors.shape, len(query)
    best = torch.empty(n, dtype=torch.float32, device=vectors.device)
    if not n:
        return best
    BLOCK_D = max(32, triton.next_power_of_2(D))
    BLOCK_N = 128 if BLOCK_D <= 128 else 64 if BLOCK_D <= 256 else 16
    BLOCK_T = min(WORDS, max(16, triton.next_power_of_2(T)))
    tensors = (x.contiguous() for x in (vectors, scales, query, query_scales))
    _best_cosine[(triton.cdiv(n, BLOCK_N),)](
        *tensors, best, n, T, D,
        HEADS=heads, ROUNDS=triton.cdiv(T, BLOCK_T), COUNTING=T > WORDS and counts(D),
        BLOCK_N=BLOCK_N, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D,
        # More warps where each program ends soon; where it computes more than it reads, fewer.
        num_warps=8 if BLOCK_T == WORDS >= T else 4, num_stages=3,
        enable_fp_fusion=False,  # a fused multiply-add would not give the reference's bits
    )  # fmt: skip
    return best


def counts(D: int) -> bool:
    """Whether sums of D products can be counted from a float."""
    return D <= COUNTED


def sliding_max_refusal(raw: Tensor, reach: int) -> str | None:
    """None: the kernel computes everything."""
    return None


def sliding_max(raw: Tensor, reach: int) -> Tensor:
    """As defined."""
    n, reach = len(raw), min(reach, len(raw))
    width, window = 1, 2 * reach + 1
    level, shift = raw.contiguous(), -reach  # level[p + shift] starts at neighbour p of entry 0
    while width * FAN < window:
        higher = torch.empty(n + 2 * reach, dtype=raw.dtype, device=raw.device)
        _strided_max(level, higher, FAN, shift, width, (FAN - 1) * width)
        level, shift, width = higher, 0, width * FAN
    out = torch.empty_like(raw, memory_format=torch.contiguous_format)
    _strided_max(level, out, triton.cdiv(window, width), shift, width, window - width)
    return out


def _strided_max(source: Tensor, out: Tensor, count: int, shift: int, step: int, last: int) -> None:
    """out[i] = the maximum of source[i + shift + min(c * step, last)] over c < count."""
    BLOCK = 1024
    if len(out):
        _maxima[(triton.cdiv(len(out), BLOCK),)](
            source, out, len(source), len(out), shift, step, last, COUNT=count, BLOCK=BLOCK
        )


@triton.jit
def scaled_dots(rows, words, scale, COUNTING: tl.constexpr):
    """The dots (rows, words) of int8 entries as float32, each times the scale of its row."""
    if COUNTING:
        start = tl.full((rows.shape[0], words.shape[0]), START_BITS, tl.int32)
        counted = tl.dot(rows, tl.trans(words), start, out_dtype=tl.int32)
        dots = counted.to(tl.float32, bitcast=True) - START
    else:
        dots = tl.dot(rows, tl.trans(words), out_dtype=tl.int32).to(tl.float32)
    return dots * scale.to(tl.float32)[:, None]


@triton.jit
def _best_cosine(
    vectors, scales, query, query_scales, best, n, T, D,
    HEADS: tl.constexpr, ROUNDS: tl.constexpr, COUNTING: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK_N
    rows, columns = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    live, inside = first + rows < n, columns < D
    highest = tl.full((BLOCK_N,), -float("inf"), tl.float32)
    for start in tl.range(0, ROUNDS * BLOCK_T, BLOCK_T):
        asked = start + tl.arange(0, BLOCK_T)
        total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
        for h in tl.range(HEADS):
            tokens = vectors + (first * HEADS + h) * D
            tokens += rows[:, None] * (HEADS * D) + columns[None, :]
            words = query + (asked[:, None] * HEADS + h) * D + columns[None, :]
            token = tl.load(tokens, mask=live[:, None] & inside[None, :], other=0)
            word = tl.load(words, mask=(asked < T)[:, None] & inside[None, :], other=0)
            scale = tl.load(scales + first * HEADS + rows * HEADS + h, mask=live, other=0.0)
            factor = tl.load(query_scales + asked * HEADS + h, mask=asked < T, other=0.0)
            total += scaled_dots(token, word, scale, COUNTING) * factor.to(tl.float32)[None, :]
        total = tl.where((asked < T)[None, :], total, -float("inf"))
        highest = tl.maximum(highest, tl.max(total, 1))
    mean = tl.div_rn(highest, tl.full((BLOCK_N,), HEADS, tl.float32))
    tl.store(best + first + rows, mean, mask=live)


@triton.jit
def _maxima(
    source, out, source_count, count, shift, step, last,
    COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), -float("inf"), source.dtype.element_ty)
    for c in tl.static_range(COUNT):
        read = places + shift + tl.minimum(c * step, last)
        inside = (read >= 0) & (read < source_count)
        entry = tl.load(source + read, mask=inside, other=-float("inf"))
        highest = tl.maximum(highest, entry)
    tl.store(out + places, highest, mask=places < count)
