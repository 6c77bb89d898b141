"""Half the scores of the document's own method, half BM25's, each as z-scores over all tokens.

REFORM (4.4) mixes its scores with those of another retriever and prints no weights; these are ours.
"""

from torch import Tensor

from longctx.core.memory import Scores
from longctx.core.scoring import Sought

SHARE = 0.5  # of the method's own scores


def scores(sought: Sought) -> Scores:
    """The mean of the z-scores of the method's pooled scores and of BM25's.

    A token's raw score has its unpooled score in place of the pooled one, on the same scale: ties
    go to the token that fits better by itself, then to the earlier one.

    Raises:
        LongctxError: the document's method gives no scores.
    """
    own = sought.own()  # first: where there are none, no words need be counted
    words = (1 - SHARE) * _z(sought.index.scores(sought.words).pooled)
    return Scores(
        raw=SHARE * _z(own.raw, own.pooled) + words,
        pooled=SHARE * _z(own.pooled) + words,
    )


def _z(values: Tensor, among: Tensor | None = None) -> Tensor:
    """Distances (N,) from a mean in standard deviations, which are those of `among` (N,).

    Where nothing varies a deviation counts as 1, so that the pooled scores are all 0.
    """
    values, among = values.double(), (values if among is None else among).double()
    if not len(among):
        return values
    varies = bool(among.min() < among.max())
    mean = among.mean() if varies else among[0]  # exactly: a mean of equal numbers is rounded
    return (values - mean) / (among.std(correction=0) if varies else 1.0)
