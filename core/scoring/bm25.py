"""BM25: a token has the score of its passage of 128 tokens, by the words of the question in it.

No model takes part. Knows nothing of how passages are found or words counted: see `PassageIndex`.
"""

from longctx.core.memory import Scores
from longctx.core.scoring import Sought


def scores(sought: Sought) -> Scores:
    """The passages' scores, spread over their tokens; ties go to the earlier token."""
    return sought.index.scores(sought.words)
