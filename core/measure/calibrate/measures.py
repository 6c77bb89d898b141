"""The measures by which heads are ranked, of all heads of a layer at once.

`maxsim` is of the rule that documents are gathered by; `mnr` is REFORM's own. Pure functions.
"""

from collections.abc import Sequence

import torch

from longctx.core.measure.calibrate.ranks import affinities, mean_ranks
from longctx.core.measure.calibrate.tapping import LayerStates
from longctx.core.measure.calibrate.window_ranks import sentence_ranks

MAXSIM, MNR = MEASURES = ("maxsim", "mnr")


def layer_ranks(
    states: LayerStates, gold: Sequence[tuple[int, int]]
) -> dict[str, dict[str, list[float]]]:
    """How every head of a layer ranks what a question needs; lower is better.

    Args:
        states: of document and question.
        gold: [first, end) tokens of each sentence that the question needs.

    Returns:
        By MEASURES, by KINDS, one of each head: query heads for q and attention, key/value heads
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
