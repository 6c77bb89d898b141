"""The operations that kernels compute, and the types of their arguments and results.

The definition `<op>_ref.py` states each one's contract; `choice.py` chooses between it and the
kernel at every call. Operations that decode one token use buffers of fixed size and read counts and
places on the device, so that a step can be captured in a graph once and run for every token; the
definitions may wait for such numbers. `make docs` writes their table in docs/kernels.md.
"""

# ruff: noqa: F401  # others import these from here

from collections.abc import Callable
from inspect import getdoc
from typing import Any

from longctx.kernels.append_rotated_ref import PAGE, Pages, Store, append_rotated
from longctx.kernels.attention_mass_ref import attention_mass
from longctx.kernels.band_attention_ref import band_attention
from longctx.kernels.best_tokens_ref import best_tokens
from longctx.kernels.block_checksums_ref import block_checksums
from longctx.kernels.cached_attention_ref import cached_attention
from longctx.kernels.choice import operations
from longctx.kernels.expert_sum_ref import expert_sum
from longctx.kernels.fused_attention import fused_attention
from longctx.kernels.gated_product_ref import (
    CLAMPED,
    GELU_TANH,
    SILU,
    Activation,
    Biases,
    gated_product,
)
from longctx.kernels.gather_rows_ref import gather_rows
from longctx.kernels.kept_rows_ref import heaviest_tokens, kept_rows
from longctx.kernels.matvec_ref import matvec
from longctx.kernels.maxsim_windows_ref import maxsim_windows
from longctx.kernels.merged_attention_ref import merged_attention, with_sinks
from longctx.kernels.page_scores_ref import page_scores
from longctx.kernels.paged_attention_ref import paged_attention
from longctx.kernels.residual_norm_ref import FORMS, Scaled, normed, residual_norm
from longctx.kernels.rotated_chunk_ref import rotated_chunk
from longctx.kernels.rotated_rows_ref import rotated_rows
from longctx.kernels.row_scaled_ref import (
    FP8,
    ScaledRows,
    gated_row_scaled,
    residual_row_scaled,
    row_scaled,
)
from longctx.kernels.select_window_ref import Window, select_window
from longctx.kernels.selected_attention_ref import selected_attention
from longctx.kernels.similarity_max_ref import similarity_max, sliding_max
from longctx.kernels.span_boxes_ref import Boxes, span_boxes
from longctx.kernels.top_pages_ref import Stamps, stamp, top_pages
from longctx.kernels.topk_scan_ref import Top, topk_scan
from longctx.kernels.window_attention_ref import window_attention


def table() -> str:
    """The operations and what each computes, by the first lines of their contracts."""
    fused: dict[str, Callable[..., Any]] = {"fused_attention": fused_attention}
    rows = [
        f"| `{name}` | {(getdoc(one) or '').splitlines()[0].rstrip('.')} |"
        for name, one in sorted((operations | fused).items())
    ]
    return "\n".join(["| operation | what it computes |", "|---|---|", *rows])
