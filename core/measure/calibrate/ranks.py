"""How near a document's tokens are to a question's in each head, and the mean normalised rank of
what the question needs (REFORM, appendix C.1).

Scores of the document's tokens, smoothed over their neighbours, and the ranks of those that are
wanted. Pure functions of one layer's states; knows no model and no file.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.common.errors import LongctxError
from longctx.core.measure.calibrate.tapping import LayerStates, Unit

KINDS = ("q", "k", "v", "attention", "hidden")
NEIGHBOURS = 20  # over which a token's score is averaged with its own, half on each side


def affinities(states: LayerStates) -> dict[str, Tensor]:
    """How near each of a document's tokens is to each of its question's, for every head of a layer.

    Returns:
        By KINDS, (heads, N, T) float32: query heads for q and attention, key/value heads for k and
        v, and one for hidden. Cosines, but for attention, which has dots.

    Raises:
        LongctxError: the states are not finite.
    """
    document, question = states.document, states.question
    found = {kind: cosines(document[kind], question[kind]) for kind in document}
    found["attention"] = dots(document["k"], question["q"])
    for kind in KINDS:
        _require_finite(found[kind], states.index, kind)
    return {kind: found[kind] for kind in KINDS}


def mean_ranks(near: Tensor, gold: Tensor) -> Tensor:
    """The mean normalised rank of every head of a kind (REFORM, appendix C.1).

    Args:
        near: (heads, N, T) of `affinities`.
        gold: (n,) the document's tokens that the question needs.

    Returns:
        (heads,) float64 on the CPU.
    """
    return normalised_ranks(pooled(near.amax(dim=2)), gold).mean(dim=1)


def cosines(document: Unit, question: Unit) -> Tensor:
    """The cosine of each document token with each of the question's: (heads, N, T)."""
    found = document.vectors.float() @ question.vectors.float().transpose(1, 2)
    return found + 0 * document.lengths[..., None]  # not finite where a state is not


def dots(keys: Unit, queries: Unit) -> Tensor:
    """q·k of each document token with each of the question's, no position or scale: (H, N, T).

    Args:
        keys: of the document, G heads.
        queries: of the question, H heads; query head h reads key head h // (H/G).
    """
    k = keys.vectors.float() * keys.lengths[..., None]
    q = queries.vectors.float() * queries.lengths[..., None]
    grouped = q.unflatten(0, (len(k), -1))  # (G, H/G, T, D)
    return (grouped @ k.transpose(1, 2)[:, None]).flatten(0, 1).transpose(1, 2)


def pooled(scores: Tensor) -> Tensor:
    """Means of each token's score and those of its neighbours, fewer at the ends: (heads, N)."""
    half = NEIGHBOURS // 2
    shape = {"kernel_size": NEIGHBOURS + 1, "stride": 1, "padding": half}
    return F.avg_pool1d(scores[:, None], **shape, count_include_pad=False)[:, 0]


def normalised_ranks(scores: Tensor, gold: Tensor) -> Tensor:
    """The rank of some tokens, or windows, divided by the number of all.

    The best one has rank 1. Those of equal scores share the mean of their ranks.

    Args:
        scores: (heads, N), higher is better.
        gold: (n,) tokens.

    Returns:
        (heads, n) float64 on the CPU, above 0 and at most 1; about 0.5 by chance.
    """
    own = scores[:, gold.to(scores.device), None]  # (heads, n, 1)
    # Counted on the device, and widened on the CPU: not every device has float64.
    higher = (scores[:, None] > own).sum(dim=2).cpu()
    equal = (scores[:, None] == own).sum(dim=2).cpu()  # the token itself included
    ranks = higher.double() + (equal + 1).double() / 2
    return ranks / scores.shape[1]


def _require_finite(scores: Tensor, index: int, kind: str) -> None:
    if not torch.isfinite(scores).all():
        raise LongctxError(
            f"cannot rank the heads of layer {index}",
            f"the model gives {kind} states that are not finite",
            "Use another --dtype.",
        )
