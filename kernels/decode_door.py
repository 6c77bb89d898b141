"""The door to the kernels that decode one token; it chooses like `door.py`.

What each computes is defined in its `_ref.py`. Every kernel works on buffers of fixed size and
takes counts and places from the device, so that a step can be captured in a graph once and run for
every token; the references may wait for such numbers.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from longctx.kernels import choice
from longctx.kernels.append_rotated_ref import PAGE, Pages, Store
from longctx.kernels.append_rotated_ref import append_rotated as append_rotated_ref
from longctx.kernels.best_tokens_ref import best_tokens as best_tokens_ref
from longctx.kernels.cached_attention_ref import cached_attention as cached_attention_ref
from longctx.kernels.matvec_ref import matvec as matvec_ref
from longctx.kernels.page_scores_ref import page_scores as page_scores_ref
from longctx.kernels.paged_attention_ref import paged_attention as paged_attention_ref
from longctx.kernels.top_pages_ref import Stamps
from longctx.kernels.top_pages_ref import stamp as stamp_ref
from longctx.kernels.top_pages_ref import top_pages as top_pages_ref

__all__ = ["PAGE", "Pages", "Stamps", "Store"]


def _either(op: str, definition: Any, x: Tensor, *given: Any, of: str | None = None, **more: Any):
    """The kernel `op` of the module `of`, or its definition."""
    return choice.either(
        of or op,
        x.device,
        lambda module: getattr(module, f"{op}_refusal", module.refusal)(x, *given, **more),
        lambda module: getattr(module, op)(x, *given, **more),
        lambda: definition(x, *given, **more),
    )


def append_rotated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    stores: Sequence[Store],
    pages: Pages | None = None,
) -> Tensor:
    """Writes a token to its stores, its key rotated; the rotated queries (H, 1, D)."""
    given = (q, k, v, position, cos, sin, stores, pages)
    return _either("append_rotated", append_rotated_ref, *given)


def cached_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    count: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Attention (H, 1, D) of one token to the first `count` entries of a cache."""
    given = (q, keys, values, count, scale, window, softcap, sinks, weights)
    return _either("cached_attention", cached_attention_ref, *given)


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    filled: Tensor,
    pages: Tensor | None,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention (H, 1, D) of one token to the pages that each key/value head has chosen."""
    given = (q, keys, values, filled, pages, scale, softcap, sinks)
    return _either("paged_attention", paged_attention_ref, *given)


def page_scores(
    q: Tensor,
    low: Tensor,
    high: Tensor,
    filled: Tensor,
    scale: float,
    always: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Upper bounds (G, P) of a token's logits in each page; the page `always` gets inf."""
    return _either("page_scores", page_scores_ref, q, low, high, filled, scale, always, out)


def top_pages(scores: Tensor, count: int, out: Tensor | None = None) -> Tensor:
    """The best pages (G, min(count, P)) of each head, ascending."""
    return _either("top_pages", top_pages_ref, scores, count, out)


def stamp(scores: Tensor, stamps: Stamps) -> Tensor:
    """Renews the stamps (N, P) of pages by their scores."""
    return _either("stamp", stamp_ref, scores, stamps, of="top_pages")


def best_tokens(weights: Tensor, count: Tensor, budget: int, pool: int) -> Tensor:
    """The tokens (G, min(budget, N)) of the first `count` that most attention went to."""
    return _either("best_tokens", best_tokens_ref, weights, count, budget, pool)


def matvec(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """A vector through a matrix, with the norm before it and the gate or sum after it."""
    return _either("matvec", matvec_ref, x, weight, bias, norm, eps, residual, gated)
