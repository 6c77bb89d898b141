"""How answers are judged: exact match, SQuAD's exact match and F1, refusals, intervals.

Knows nothing of models, of documents, or of how cases are made.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable

from longctx.core.measure.intervals import wilson

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def rate(hits: Iterable[bool]) -> dict[str, float]:
    """Count, rate and interval of trials."""
    hits = list(hits)
    right, count = sum(hits), len(hits)
    low, high = wilson(right, count) if count else (0.0, 1.0)
    return {
        "n": count,
        "right": right,
        "rate": right / count if count else 0.0,
        "low": low,
        "high": high,
    }


def normalised(answer: str) -> str:
    """As SQuAD compares: small letters, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def squad_scores(answer: str, rights: list[str]) -> tuple[float, float]:
    """SQuAD's exact match (0 or 1) and F1 of words, each with the right answer that fits best."""
    exact = max(float(normalised(answer) == normalised(right)) for right in rights)
    return exact, max(
        _f1(normalised(answer).split(), normalised(right).split()) for right in rights
    )


def refusals(refused: list[bool], absent: list[bool]) -> dict[str, float]:
    """Precision and recall of saying that the document has no answer.

    Args:
        refused: whether the model said so.
        absent: whether it is so.
    """
    true = sum(said and is_so for said, is_so in zip(refused, absent, strict=True))
    return {
        "n": len(refused),
        "absent": sum(absent),
        "refused": sum(refused),
        "precision": true / sum(refused) if any(refused) else 0.0,
        "recall": true / sum(absent) if any(absent) else 0.0,
    }


def _f1(words: list[str], right: list[str]) -> float:
    if not words or not right:
        return float(words == right)
    common = (Counter(words) & Counter(right)).total()
    return 2 * common / (len(words) + len(right))
