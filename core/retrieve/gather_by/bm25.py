"""BM25: the question's words alone, without a model.

A passage counts with the words of its neighbours (`core/retrieve/ranked.py`).
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked, by_words


class GatherSource(gather_by.GatherSource):
    """Ranks passages by BM25."""

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        return by_words(sought.index, sought.words)
