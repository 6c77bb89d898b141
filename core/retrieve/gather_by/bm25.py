"""BM25: the question's words alone, without a model.

Of windows of 128 tokens; how these are made and words counted, `PassageIndex` knows.
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.lexical import WINDOW
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """The windows by BM25."""

    embeddings = "unused"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        units, words = sought.index.units, sought.index.window_scores(sought.words)
        return Ranked(units, units.spans(WINDOW), words, words, None)
