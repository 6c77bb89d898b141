"""Standardised MaxSim: embeddings alone.

It ranks windows of 128 tokens by late interaction over the embeddings that REFORM keeps
(`core/retrieve/late_interaction.py`).
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks windows by standardised MaxSim."""

    embeddings = "needed"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        assert sought.maxima, "embeddings are needed"
        maxima = sought.maxima()
        meaning = maxima.scores(sought.width)
        return Ranked(maxima.units, maxima.units.spans(sought.width), meaning, None, meaning)
