"""BM25: windows of 128 tokens by the words of the question in them.

No model takes part. Knows nothing of how windows are made or words counted: see `PassageIndex`.
"""

from longctx.core.retrieve.gather_by import Sought
from longctx.core.retrieve.lexical import WINDOW
from longctx.core.retrieve.ranked import Ranked


def rank(sought: Sought) -> Ranked:
    """The windows by BM25."""
    units, words = sought.index.units, sought.index.window_scores(sought.words)
    return Ranked(units, units.spans(WINDOW), words, words, None)
