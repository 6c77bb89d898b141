"""Standardised MaxSim: embeddings alone.

It ranks passages by late interaction over the embeddings that REFORM keeps
(`core/retrieve/late_interaction.py`).
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks passages by standardised MaxSim."""

    embeddings = True

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        assert sought.maxima, "embeddings are needed"
        passages = sought.index.passages
        meaning = sought.maxima().scores(passages.alone())
        return Ranked(passages, meaning, None, meaning)
