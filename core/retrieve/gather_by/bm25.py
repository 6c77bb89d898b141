"""BM25: the question's words alone, without a model.

It ranks windows of 128 tokens; `PassageIndex` makes them and counts their words.
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks windows by BM25."""

    embeddings = "unused"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        units, width = sought.index.units, sought.width
        words = sought.index.window_scores(sought.words, width)
        return Ranked(units, units.spans(width), words, words, None)
