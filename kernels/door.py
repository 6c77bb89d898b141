"""The one door to the kernels: every operation, by its kernel or by its reference.

A Triton kernel is taken for tensors on a GPU, where Triton is installed and the kernel takes what
it is given; else the reference. `LONGCTX_KERNELS=triton` makes a device without Triton, or a kernel
that fails, an error; `LONGCTX_KERNELS=reference` turns all of them off. Each choice is logged once,
with its reason, at level INFO: `choice.py` makes it. Knows nothing of methods.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from longctx.kernels import choice
from longctx.kernels import fused_attention as fused
from longctx.kernels.attention_mass_ref import attention_mass as attention_mass_ref
from longctx.kernels.gather_rows_ref import gather_rows as gather_rows_ref
from longctx.kernels.maxsim_windows_ref import maxsim_windows as maxsim_windows_ref
from longctx.kernels.rotated_rows_ref import rotated_rows as rotated_rows_ref
from longctx.kernels.select_window_ref import Window
from longctx.kernels.select_window_ref import select_window as select_window_ref
from longctx.kernels.selected_attention_ref import selected_attention as selected_attention_ref
from longctx.kernels.similarity_max_ref import similarity_max as similarity_max_ref
from longctx.kernels.similarity_max_ref import sliding_max as sliding_max_ref
from longctx.kernels.span_boxes_ref import Boxes
from longctx.kernels.span_boxes_ref import span_boxes as span_boxes_ref
from longctx.kernels.topk_scan_ref import Top
from longctx.kernels.topk_scan_ref import topk_scan as topk_scan_ref


def attention_mass(
    q: Tensor, k: Tensor, scale: float, lse: Tensor | None = None, **more: Any
) -> Tensor:
    """Attention that each key receives, summed over the last queries and a group's heads.

    Args:
        q: rotated queries (H, W, D) at the last W of S consecutive positions.
        k: rotated keys (G, S, D); query head h reads key head h // (H/G).
        scale: factor on q·k.
        lse: log-sum-exps (H, W) of these queries, where their attention has given them; they
            spare the kernel a pass, and the reference does without.
        **more: what else the reference takes; the kernel takes none of it.

    Returns:
        (G, S), float32 (float64 for float64 inputs); each row sums to W * H / G.
    """
    more = {name: value for name, value in more.items() if value is not None}
    return choice.either(
        "attention_mass",
        q.device,
        lambda module: module.refusal(q, k, **more),
        lambda module: module.attention_mass(q, k, scale, lse),
        lambda: attention_mass_ref(q, k, scale, **more),
    )


def similarity_max(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> Tensor:
    """Maximum over question tokens of the mean over heads of their cosine with each token.

    Args:
        vectors, scales: int8 (n, heads, D) and float16 (n, heads), the tokens.
        query, query_scales: int8 (T, heads, D) and float16 (T, heads), the question's tokens.

    Returns:
        (n,) float32. Equal inputs give equal bits, whatever n is cut into.
    """
    given = (vectors, scales, query, query_scales)
    return choice.either(
        "similarity_max",
        vectors.device,
        lambda module: module.refusal(*given),
        lambda module: module.similarity_max(*given),
        lambda: similarity_max_ref(*given),
    )


def sliding_max(raw: Tensor, reach: int) -> Tensor:
    """Maximum over -reach..+reach around each of n entries, clipped at the ends."""
    return choice.either(
        "similarity_max",
        raw.device,
        lambda module: None,
        lambda module: module.sliding_max(raw, reach),
        lambda: sliding_max_ref(raw, reach),
    )


def maxsim_windows(
    vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor, starts: Tensor
) -> Tensor:
    """Maximum over each unit's tokens of the mean over heads of their cosine with a question token.

    Rows may come in shards of any size, whose ends may cut units. With `best` full of -inf at the
    start, and for each shard of the m rows from `first` on, which has tokens of units i to j:

        within = (starts[i : j + 1] - first).clamp(0, m)
        part = maxsim_windows(vectors, scales, query, query_scales, within)
        best[i:j] = torch.maximum(best[i:j], part)

    gives the bits of one call with all rows. Units without a token in the shard may be among them.

    Args:
        vectors, scales: int8 (n, heads, D) and float16 (n, heads), the tokens.
        query, query_scales: int8 (T, heads, D) and float16 (T, heads), the question's tokens.
        starts: int64 (w + 1,) on the device of the vectors, ascending within 0..n; unit i is tokens
            starts[i] to starts[i + 1], at most 64.

    Returns:
        (w, T) float32; -inf where a unit is empty, nan where it is longer than 64 tokens. Equal
        units give equal bits, whatever stands before and after them.
    """
    given = (vectors, scales, query, query_scales, starts)
    return choice.either(
        "maxsim_windows",
        vectors.device,
        lambda module: module.refusal(*given),
        lambda module: module.maxsim_windows(*given),
        lambda: maxsim_windows_ref(*given),
    )


def topk_scan(q: Tensor, keys: Tensor, k: int, scales: Tensor | None = None) -> Top:
    """Each query's k best keys by plain q·k, exactly, and how often each key is among them.

    Args:
        q: position-free queries (H, T, D).
        keys: position-free keys (N, G, D) of q's dtype, or int8 with scales; query head h reads
            key head h // (H/G). The last dimension is contiguous.
        k: keys that are wanted of each query; n = min(k, N) are found.
        scales: (N, G) float16; a key is its int8 entries times its scale. None: keys are floats.

    Returns:
        Scores and index (H, T, n), the earlier key first where scores are equal; votes and best
        scores (N,). Ranges of keys that are scanned apart are put together by `merge` and
        `count_votes` of `topk_scan_ref.py`.
    """
    given = (q, keys, k, scales)
    return choice.either(
        "topk_scan",
        q.device,
        lambda module: module.refusal(*given),
        lambda module: module.topk_scan(*given),
        lambda: topk_scan_ref(*given),
    )


def span_boxes(summed: Tensor, threshold: Tensor) -> Boxes:
    """The best span of each anti-diagonal of the scores of a block's spans.

    Args:
        summed: (B, N, N), attention of rows to columns summed over heads; what is above the
            diagonal does not count.
        threshold: (B,), taken off every entry on and below the diagonal.

    Returns:
        Scores, first and last tokens of 2N-1 spans of each block, in the order of x + y; of equal
        scores the earlier x. Scores are float32, or float64 for float64 maps.
    """
    given = (summed, threshold)
    return choice.either(
        "span_boxes",
        summed.device,
        lambda module: module.refusal(*given),
        lambda module: module.span_boxes(*given),
        lambda: span_boxes_ref(*given),
    )


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> fused.Attended | None:
    """Attention by the fastest fused operator that takes these tensors.

    Args:
        q: queries (H, T, D).
        k, v: keys and values (G, S, D); query head h reads head h // (H/G).
        scale: factor on q·k.
        causal: query i sees keys up to i; T must equal S. Else each sees all keys.

    Returns:
        Output (H, T, D) and log-sum-exps (H, T); None where no operator takes them.
    """
    if choice.asked_for() == "reference":
        choice.tell("attention", "a masked call", f"{choice.VARIABLE}=reference")
        return None
    why = f"the first that takes {q.dtype} on {q.device.type}"
    for operator in fused.operators(q, k):
        name = f"{operator.__name__} attention"
        key = (name, q.device, q.dtype, q.shape[-1], causal)
        attended = choice.attempt(key, lambda chosen=operator: chosen(q, k, v, scale, causal))
        if attended is not None:
            choice.tell("attention", name, why)
            return attended
        why = f"{name} failed: {choice.broken[key]}"
    choice.tell("attention", "a masked call", why)
    return None


def gather_rows(
    blocks: Sequence[Tensor],
    table: Tensor,
    tail: Tensor,
    start: int,
    index: Tensor,
    scales: Sequence[Tensor] | None = None,
    scale_table: Tensor | None = None,
) -> Tensor:
    """Rows by their number, from blocks that may lie in host memory and from the tail after them.

    Args:
        blocks: (B, G, D) each, all of one B and dtype; row r < start is row r % B of block r // B.
            For the kernel contiguous, on the tail's device or in pinned host memory.
        table: int64 (blocks,) on the tail's device, the `data_ptr` of each block.
        tail: (n, G, D); row r >= start is tail[r - start].
        start: rows in the blocks.
        index: (S,) int64 on the tail's device, clamped to 0..start+n-1.
        scales: float16 (B, G) for each block, whose rows are then int8.
        scale_table: int64 (blocks,), their `data_ptr`.

    Returns:
        (S, G, D) in the dtype and on the device of the tail.
    """
    return choice.either(
        "gather_rows",
        tail.device,
        lambda module: module.refusal(blocks, tail, index, scales),
        lambda module: module.gather_rows(blocks, table, tail, start, index, scales, scale_table),
        lambda: gather_rows_ref(blocks, tail, start, index, scales),
    )


def select_window(
    votes: Tensor, best: Tensor, count: int, span: int, first: int, last: int, total: int
) -> Window:
    """[the first tokens | the most voted ones with their neighbours | the last tokens].

    Args:
        votes: (N,) int32, N > 0, of the tokens between the first and the last; a token without
            votes is never chosen.
        best: (N,) float32, the highest score with which each was chosen; decides between equal
            votes, and where it is equal too, the earlier token comes first.
        count: most voted tokens at most.
        span: tokens that each of them grows to: -span/2 .. +span/2 - 1.
        first, last: tokens at the start and at the end that are always in.
        total: tokens in all.

    Returns:
        Index (first + count * span + last,) int64, ascending, and how much of it is in use (1,);
        behind that the last token repeats. No number leaves the device.
    """
    given = (votes, best, count, span)
    return choice.either(
        "select_window",
        votes.device,
        lambda module: module.refusal(*given),
        lambda module: module.select_window(*given, first, last, total),
        lambda: select_window_ref(*given, first, last, total),
    )


def rotated_rows(
    rows: Tensor,
    index: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    scales: Tensor | None = None,
    dtype: torch.dtype | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """Rows by their number, decoded, and rotated to consecutive positions.

    Args:
        rows: (N, G, D) floating, or int8 with scales; the last dimension is contiguous.
        index: (S,) int64, clamped to 0..N-1; None: all of them in order, S = N.
        cos, sin: (P, R) by position, where `Rope.half_split`; None: nothing is rotated.
        scales: (N, G) float16; a row is its int8 entries times its scale.
        dtype: of the result; None: that of cos.
        total: (1,) int on the device, from S to P: row s stands at position total - S + s; None: at
            position s, S <= P. It does not leave the device.

    Returns:
        (S, G, D), every product and sum rounded to the dtype, as in the models.
    """
    given = (rows, index, cos, sin, scales, dtype, total)
    return choice.either(
        "rotated_rows",
        rows.device,
        lambda module: module.refusal(*given),
        lambda module: module.rotated_rows(*given),
        lambda: rotated_rows_ref(*given),
    )


def selected_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    index: Tensor,
    total: Tensor,
    scale: float,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    key_scales: Tensor | None = None,
    gathered: bool = False,
    **more: Any,
) -> Tensor:
    """Attention of one token to those that a list names, itself the last of them.

    Args:
        q: position-free queries (H, 1, D), at position total - 1.
        keys: (N, G, D), position-free, of q's dtype or int8; query head h reads key head
            h // (H/G).
        values: (N, G, D).
        index: (S,) int64, the tokens in order; entry s stands at position s.
        total: (1,) int on the device, entries in use; what the others hold does not count.
        scale: factor on q·k.
        cos, sin: (>= S, R) by position, where `Rope.half_split`; None: nothing is rotated.
        key_scales: float16 (N, G) of int8 keys.
        gathered: the values are (S, G, D), in the order of the list.
        **more: what else the reference takes; the kernel takes none of it.

    Returns:
        (H, 1, D) in the dtype of q, computed in float32. No number leaves the device.
    """
    given = (q, keys, values, index, total)
    rotation = (cos, sin, key_scales)
    more = {name: value for name, value in more.items() if value is not None}
    return choice.either(
        "selected_attention",
        q.device,
        lambda module: module.refusal(*given, *rotation, **more),
        lambda module: module.selected_attention(*given, scale, *rotation, gathered),
        lambda: selected_attention_ref(*given, scale, *rotation, gathered, **more),
    )


def window_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, total: Tensor) -> Tensor | None:
    """Causal attention of queries at the last T of so many positions as the device knows of.

    Args:
        q: rotated queries (H, T, D), at positions total - T to total - 1.
        k, v: rotated keys and values (S, G, D); query head h reads head h // (H/G); what is in the
            rows from `total` on does not count.
        scale: factor on q·k.
        total: (1,) int on the device, between T and S. It does not leave the device.

    Returns:
        (H, T, D); None where no operator takes them: ask the device for `total`, and attend to as
        many keys.
    """
    op, key = "window attention", ("window attention", q.device, q.dtype, q.shape[-1])
    why = fused.window_refusal(q)
    if choice.asked_for() == "reference":
        why = f"{choice.VARIABLE}=reference"
    if why is None:
        out = choice.attempt(key, lambda: fused.window(q, k, v, scale, total))
        if out is not None:
            choice.tell(op, "flash attention", f"on {q.device.type}")
            return out
        why = f"flash attention failed: {choice.broken[key]}"
    choice.tell(op, "with the number of keys on the host", why)
    return None
