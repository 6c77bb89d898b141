"""How well each head finds what a question needs, by two measures; lower is better.

`maxsim` is the rank of a window by late interaction, the rule that gathers documents (standardised
MaxSim, `core/retrieve/late_interaction.py`), for plain windows and for each head alone.
`mnr` is the mean normalised rank of tokens (REFORM, appendix C.1): scores of the document's tokens,
smoothed over their neighbours, and the ranks of those that are needed. Pure functions of one
layer's states.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.core.common.errors import LongctxError
from longctx.core.measure.calibrate.tapping import LayerStates, Unit

MAXSIM, MNR = MEASURES = ("maxsim", "mnr")
KINDS = ("q", "k", "v", "attention", "hidden")
UNIT = 64  # tokens; a window is two neighbouring units
NEIGHBOURS = 20  # neighbours that a token's score is averaged with, half on each side


def layer_ranks(
    states: LayerStates, gold: Sequence[tuple[int, int]]
) -> dict[str, dict[str, list[float]]]:
    """How every head of a layer ranks what a question needs; lower is better.

    Args:
        states: states of document and question.
        gold: [first, end) tokens of each sentence that the question needs.

    Returns:
        By measure and kind, one rank per head: query heads for q and attention, key/value heads
        for k and v, and one for hidden.

    Raises:
        LongctxError: the states are not finite.
    """
    tokens = torch.cat([torch.arange(*sentence) for sentence in gold])
    found: dict[str, dict[str, list[float]]] = {measure: {} for measure in MEASURES}
    for kind, near in affinities(states).items():
        found[MAXSIM][kind] = sentence_ranks(near, gold).tolist()
        found[MNR][kind] = mean_ranks(near, tokens).tolist()
    return found


def affinities(states: LayerStates) -> dict[str, Tensor]:
    """The similarity of each document token to each question token, for every head of a layer.

    Returns:
        By kind, (heads, N, T) float32: query heads for q and attention, key/value heads for k and
        v, and one for hidden. Cosines, except for attention, which has dot products.

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
        near: (heads, N, T) similarities.
        gold: (n,) document tokens that the question needs.

    Returns:
        (heads,) float64 on the CPU.
    """
    return normalised_ranks(pooled(near.amax(dim=2)), gold).mean(dim=1)


def cosines(document: Unit, question: Unit) -> Tensor:
    """The cosine of each document token with each question token: (heads, N, T)."""
    found = document.vectors.float() @ question.vectors.float().transpose(1, 2)
    return found + 0 * document.lengths[..., None]  # not finite where a state is not


def dots(keys: Unit, queries: Unit) -> Tensor:
    """q·k of document and question tokens, without position and scale: (H, N, T).

    Args:
        keys: the document's, G heads.
        queries: the question's, H heads; query head h reads key head h // (H/G).
    """
    k = keys.vectors.float() * keys.lengths[..., None]
    q = queries.vectors.float() * queries.lengths[..., None]
    grouped = q.unflatten(0, (len(k), -1))  # (G, H/G, T, D)
    return (grouped @ k.transpose(1, 2)[:, None]).flatten(0, 1).transpose(1, 2)


def pooled(scores: Tensor) -> Tensor:
    """Scores averaged with their neighbours', fewer at the ends: (heads, N)."""
    half = NEIGHBOURS // 2
    return F.avg_pool1d(scores[:, None], NEIGHBOURS + 1, 1, half, count_include_pad=False)[:, 0]


def normalised_ranks(scores: Tensor, gold: Tensor) -> Tensor:
    """Ranks of some tokens or windows, divided by the total number.

    The best one has rank 1. Equal scores share the mean of their ranks.

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


# --- by windows -----------------------------------------------------------------------------------


def sentence_ranks(near: Tensor, gold: Sequence[tuple[int, int]]) -> Tensor:
    """The rank of the best window with tokens of a sentence, as a share of all windows.

    Args:
        near: (heads, N, T) similarities.
        gold: [first, end) tokens of each sentence that the question needs.

    Returns:
        (heads,) float64 on the CPU, the mean over the sentences; 1/W is best.
    """
    scores = window_scores(near)
    best = [normalised_ranks(scores, _windows_of(*each, near.shape[1])).amin(1) for each in gold]
    return torch.stack(best).mean(dim=0)


def window_scores(near: Tensor) -> Tensor:
    """Standardised MaxSim of each window of two units, shifted by one: (heads, W).

    For each question token, the best similarity in a window is standardised over all windows, and
    negative values become 0; the score is the sum over the question. A document of one unit has one
    window.

    Args:
        near: (heads, N, T) similarities.
    """
    best = _maxima(near)
    deviation, mean = torch.std_mean(best, dim=1, correction=0, keepdim=True)
    varies = best.amax(1, keepdim=True) > best.amin(1, keepdim=True)
    standard = (best - mean) / deviation.where(varies, 1.0) * varies
    return standard.clamp_min(0).sum(dim=2)


def _maxima(near: Tensor) -> Tensor:
    """The best similarity to each question token in each window: (heads, W, T)."""
    short = -near.shape[1] % UNIT  # tokens that the last unit lacks
    units = F.pad(near, (0, 0, 0, short), value=float("-inf")).unflatten(1, (-1, UNIT)).amax(2)
    return units if units.shape[1] == 1 else units[:, :-1].maximum(units[:, 1:])


def _windows_of(first: int, end: int, tokens: int) -> Tensor:
    """The windows that contain any of the tokens [first, end)."""
    last = max(0, -(-tokens // UNIT) - 2)  # a window is named by its first unit
    return torch.arange(max(0, first // UNIT - 1), min(last, (end - 1) // UNIT) + 1)
