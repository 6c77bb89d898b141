"""The reader's order: hybrid, of which the reader that points orders the best passages anew.

It reads the best 32 passages (64 on a GPU) with the question; the one comes first in which an
answer stands most likely. Others follow as hybrid ranks them.
"""

from dataclasses import replace

import numpy as np

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.gather_by import hybrid
from longctx.core.retrieve.ranked import Ranked


class GatherSource(gather_by.GatherSource):
    """Ranks passages by both, and the best anew by how well they answer."""

    vectors = "used"
    reads = True

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """See `gather_by.GatherSource`; the best passages exchange their scores."""
        ranked = hybrid.GatherSource().rank(sought)
        if sought.answers is None or not len(ranked.scores):
            return ranked
        best = np.argsort(-ranked.scores, kind="stable")[: sought.answers.most]
        values = sought.answers.scores(best, ranked.scores[best])
        scores = ranked.scores.copy()
        scores[best[np.argsort(-values, kind="stable")]] = ranked.scores[best]
        return replace(ranked, scores=scores)
