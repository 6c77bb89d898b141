"""How well a head alone finds what a question needs by late interaction over windows.

It is the rule that a document is gathered by (standardised MaxSim,
`core/retrieve/late_interaction.py`), of plain windows and of all heads of a layer at once. Pure
functions; knows no model and no file.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.measure.calibrate.ranks import normalised_ranks
from longctx.core.retrieve.unit_table import UNIT


def sentence_ranks(near: Tensor, gold: Sequence[tuple[int, int]]) -> Tensor:
    """The rank of the best window that has tokens of a sentence, as a share of all windows.

    Args:
        near: (heads, N, T) how near each token is to each of the question's.
        gold: [first, end) tokens of each sentence that the question needs.

    Returns:
        (heads,) float64 on the CPU, the mean over the sentences; 1/W is best.
    """
    scores = window_scores(near)
    best = [normalised_ranks(scores, _windows_of(*each, near.shape[1])).amin(1) for each in gold]
    return torch.stack(best).mean(dim=0)


def window_scores(near: Tensor) -> Tensor:
    """Standardised MaxSim of each window of two units, shifted by one: (heads, W).

    The best of each question token in a window, over all windows less its mean and by its
    deviation; what is below the mean counts 0; then the sum over the question. A document of one
    unit is one window.

    Args:
        near: (heads, N, T) how near each token is to each of the question's.
    """
    best = _maxima(near)
    deviation, mean = torch.std_mean(best, dim=1, correction=0, keepdim=True)
    varies = best.amax(1, keepdim=True) > best.amin(1, keepdim=True)
    standard = (best - mean) / deviation.where(varies, 1.0) * varies
    return standard.clamp_min(0).sum(dim=2)


def _maxima(near: Tensor) -> Tensor:
    """Of each question token the best in each window, (heads, W, T)."""
    short = -near.shape[1] % UNIT  # tokens that the last unit lacks
    units = F.pad(near, (0, 0, 0, short), value=float("-inf")).unflatten(1, (-1, UNIT)).amax(2)
    return units if units.shape[1] == 1 else units[:, :-1].maximum(units[:, 1:])


def _windows_of(first: int, end: int, tokens: int) -> Tensor:
    """The windows that have some of the tokens [first, end) of so many."""
    last = max(0, -(-tokens // UNIT) - 2)  # a window is named by its first unit
    return torch.arange(max(0, first // UNIT - 1), min(last, (end - 1) // UNIT) + 1)
