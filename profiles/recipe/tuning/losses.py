"""The loss of searching: standardised MaxSim (`core/retrieve/late_interaction.py`) as the score.

So what is trained is what a search computes; the batch's windows stand for a document's.
"""

import torch
from torch import Tensor

from longctx.profiles.recipe.tuning.shelf import STEP


def search_scores(texts: Tensor, queries: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of all windows for each query.

    Args:
        texts: (B, T, D) unit vectors of stretches; T is a multiple of STEP.
        queries: (Q, W, D) unit vectors of the queries' words.
        words: (Q, W) bool, which of them there are.

    Returns:
        Two of (Q, B, T / STEP - 1): standardised MaxSim, summed over a query's words; and plain
        MaxSim, the mean of their best cosines.
    """
    similar = torch.einsum("qwd,btd->qwbt", queries, texts)
    best = similar.unflatten(-1, (-1, STEP)).amax(-1).float()
    best = torch.maximum(best[..., :-1], best[..., 1:])  # windows of two steps
    mean = best.mean((2, 3), keepdim=True)
    deviation = best.std((2, 3), keepdim=True) + 1e-4
    kept = words[:, :, None, None]
    standard = ((best - mean) / deviation).clamp_min(0).mul(kept).sum(1)
    plain = best.mul(kept).sum(1) / kept.sum(1).clamp_min(1)
    return standard, plain


def search_loss(scores: Tensor, right: Tensor, unsure: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of finding any of the right windows, and the share found first.

    Args:
        scores: (Q, B, S), with their temperature.
        right, unsure: (Q, B, S) bool; unsure windows are left out.
    """
    asked = right.flatten(1).any(1)
    scores = scores.masked_fill(unsure, -1e4).flatten(1)[asked]
    right = right.flatten(1)[asked]
    among = torch.logsumexp(scores, 1)
    found = torch.logsumexp(scores.masked_fill(~right, -1e4), 1)
    first = right.gather(1, scores.argmax(1, keepdim=True)).float().mean()
    return (among - found).mean(), first
