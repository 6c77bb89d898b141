"""BM25: windows of 128 tokens by the words of the question in them.

No model takes part. Knows nothing of how windows are made or words counted: see `PassageIndex`.
"""

from longctx.core.lexical import WINDOW
from longctx.core.ranked import Ranked
from longctx.core.scoring import Sought


def rank(sought: Sought) -> Ranked:
    """The windows by BM25."""
    units, words = sought.index.units, sought.index.window_scores(sought.words)
    return Ranked(units, units.spans(WINDOW), words, words, None)
