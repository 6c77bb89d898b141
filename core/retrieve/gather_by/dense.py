"""Dense retrieval: the sentence encoder's vectors alone.

It ranks passages by the cosine of their vectors with the question's
(`core/retrieve/dense_index.py`).
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks passages by the cosines of a sentence encoder."""

    vectors = "needed"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`."""
        cosines = sought.cosines()
        assert cosines is not None, "vectors are needed"
        return Ranked(sought.index.passages, cosines, None, cosines)
