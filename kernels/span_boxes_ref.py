"""Scores of all spans of a block by its attention map, and the best ones: the definition.

A span x..y is the triangle of the map that holds its tokens' attention to one another. Of spans
with the same middle, an anti-diagonal of the scores, only the best is kept (Tang et al.,
"Ltri-LLM", equation 5 and appendix E).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation


class Boxes(NamedTuple):
    """Spans of B blocks, each of the tokens x..y.

    Attributes:
        score: (B, M).
        x, y: (B, M) int64, first and last token, within the block.
    """

    score: Tensor
    x: Tensor
    y: Tensor


@operation
def span_boxes(summed: Tensor, threshold: Tensor) -> Boxes:
    """The best span of each anti-diagonal of the scores that a block's attention map gives.

    Args:
        summed: (B, N, N), attention of rows to columns summed over heads; entries above the
            diagonal are ignored.
        threshold: (B,), subtracted from every entry on and below the diagonal.

    Returns:
        2N-1 spans of each block, in the order of x + y; ties go to the earlier x. Scores are
        float32, or float64 for float64 maps.
    """
    B, N, _ = summed.shape
    scores = triangle(wide(summed) - wide(threshold)[:, None, None])
    middle = torch.arange(2 * N - 1, device=summed.device)[:, None]
    x = torch.arange(N, device=summed.device)
    y = middle - x  # (2N-1, N)
    inside = (x <= y) & (y < N)
    places = torch.where(inside, y * N + x, 0)
    sheared = scores.flatten(1)[:, places.flatten()].view(B, 2 * N - 1, N)
    score, x = sheared.masked_fill(~inside, -torch.inf).max(dim=2)  # the first on ties
    return Boxes(score, x, middle[:, 0] - x)


def triangle(summed: Tensor) -> Tensor:
    """Scores of all spans.

    Args:
        summed: (B, N, N), rows by columns; entries above the diagonal count as 0.

    Returns:
        (B, N, N): at [y, x], x <= y, the sum over the triangle of the span x..y, which is that over
        rows 0..y and columns x..N-1.
    """
    return summed.tril().cumsum(dim=1).flip(2).cumsum(dim=2).flip(2)


def wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it already is."""
    return x if x.dtype == torch.float64 else x.float()
