"""Hybrid: words and embeddings together.

BM25 and, with a weight, standardised MaxSim are added as z-scores over all passages, at two scales:
of passages alone, and of passages with their neighbours. A passage with the answer is more often
among others on its subject than alone. Scales and sum were chosen on the development questions
(docs/benchmarks/accuracy.md, "Gather recall").
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import NEIGHBOURS, Ranked, z_scores

MEANING = 0.75  # how much it counts next to words


class GatherSource(gather_by.GatherSource):
    """Ranks passages by both."""

    embeddings = "used"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """Ranks passages by both; by words alone where there are no embeddings."""
        index, passages = sought.index, sought.index.passages
        maxima = sought.maxima() if sought.maxima else None
        alone, around = passages.alone(), passages.around(NEIGHBOURS)
        words = index.scores_in(sought.words, alone)
        beside = index.scores_in(sought.words, around, b=0)  # fewer at a source's ends
        scores, meaning = z_scores(words) + z_scores(beside), None
        if maxima:
            meaning = maxima.scores(alone)
            scores += MEANING * (z_scores(meaning) + z_scores(maxima.scores(around)))
        return Ranked(passages, scores, words, meaning)
