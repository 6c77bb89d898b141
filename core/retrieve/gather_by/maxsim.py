"""Standardised MaxSim: windows of 128 tokens by the embeddings of the question's tokens.

Late interaction over the embeddings that REFORM keeps (`core/retrieve/late_interaction.py`).
"""

from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.lexical import WINDOW
from longctx.core.retrieve.ranked import Ranked

NEEDS_EMBEDDINGS = True


def rank(sought: Sought) -> Ranked:
    """The windows by standardised MaxSim; `sought.maxima` is there."""
    maxima = sought.maxima()
    meaning = maxima.scores(WINDOW)
    return Ranked(maxima.units, maxima.units.spans(WINDOW), meaning, None, meaning)
