"""Hybrid: words and the sentence encoder's vectors together.

BM25 and cosines are added as z-scores over all passages, at two scales: of passages alone, and of
passages with their neighbours. A passage with the answer is more often among others on its subject
than alone. All four count alike: learned weights found no more in documents that they were not
learned from (docs/benchmarks/accuracy.md, "Gather recall").
"""

from longctx.core.retrieve import gather_by
from longctx.core.retrieve.ranked import NEIGHBOURS, Ranked, means, z_scores


class GatherSource(gather_by.GatherSource):
    """Ranks passages by both."""

    vectors = "used"

    def rank(self, sought: gather_by.Sought) -> Ranked:
        """Ranks passages by both; by words alone where a document has no vectors."""
        index, passages = sought.index, sought.index.passages
        alone, around = passages.alone(), passages.around(NEIGHBOURS)
        words = index.scores_in(sought.words, alone)
        beside = index.scores_in(sought.words, around, b=0)  # fewer at a source's ends
        scores, cosines = z_scores(words) + z_scores(beside), sought.cosines()
        if cosines is not None:
            scores += z_scores(cosines) + z_scores(means(cosines, around))
        return Ranked(passages, scores, words, cosines)
