"""Standardised MaxSim: windows of 128 tokens by the embeddings of the question's tokens.

Late interaction over the embeddings that REFORM keeps (`core/late_interaction.py`).
"""

from longctx.core.lexical import WINDOW
from longctx.core.ranked import Ranked
from longctx.core.scoring import Sought

NEEDS_EMBEDDINGS = True


def rank(sought: Sought) -> Ranked:
    """The windows by standardised MaxSim; `sought.maxima` is there."""
    maxima = sought.maxima()
    meaning = maxima.scores(WINDOW)
    return Ranked(maxima.units, maxima.units.spans(WINDOW), meaning, None, meaning)
