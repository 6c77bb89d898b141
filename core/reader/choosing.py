"""One answer out of what the reader points at in many passages.

Stretches with the same words are one candidate. What counts: the reader's scores, which are
comparable over passages (shared normalisation, Clark and Gardner, ACL 2018), how well the search
ranked the passage, how many passages agree, and whether the question says the same already. The
weights were fitted on development questions (docs/benchmarks/accuracy.md, "The reader").
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.reader.pointing import Pointed
from longctx.core.reader.weights import config


@dataclass(frozen=True)
class Candidate:
    """An answer that the passages may give.

    Attributes:
        places: where it stands, the best first.
        score: by which candidates are compared.
        likely: how likely it is right, from 0 to 1.
    """

    places: tuple[Pointed, ...]
    score: float
    likely: float


def choose(
    question: str, texts: Sequence[str], search: np.ndarray, pointed: Sequence[Pointed]
) -> list[Candidate]:
    """The candidates, best first.

    Args:
        question: the user's words.
        texts: the passages that were read, in the order of the search.
        search: (P,) float64, the search's scores of them.
        pointed: what the reader points at.
    """
    groups: dict[str, list[tuple[float, Pointed]]] = {}
    for one, score in zip(pointed, place_scores(question, texts, search, pointed), strict=True):
        if score > -math.inf:
            groups.setdefault(_words(texts, one), []).append((score, one))
    scored, weight = [], config().choice["agree"]
    for places in groups.values():
        places.sort(key=lambda place: -place[0])
        agree = weight * math.log(len({one.passage for _, one in places}))
        scored.append((places[0][0] + agree, tuple(one for _, one in places)))
    scored.sort(key=lambda group: -group[0])
    return [
        Candidate(places, score, _likely(scored, number))
        for number, (score, places) in enumerate(scored)
    ]


def place_scores(
    question: str, texts: Sequence[str], search: np.ndarray, pointed: Sequence[Pointed]
) -> list[float]:
    """How good each stretch is by itself, for arguments as of `choose`.

    Minus infinity where it has no letter and no digit.
    """
    weights = config().choice
    asked = set(key(question).split())
    scores = []
    for one in pointed:
        words = _words(texts, one)
        score = (
            weights["score"] * one.score
            + weights["margin"] * one.margin
            + weights["search"] * float(search[one.passage] - search[0])
            + weights["rank"] * math.log1p(one.passage)
            + weights["said"] * (set(words.split()) <= asked)
        )
        scores.append(score if any(map(str.isalnum, words)) else -math.inf)
    return scores


def _words(texts: Sequence[str], one: Pointed) -> str:
    """What a stretch is compared by."""
    return key(texts[one.passage][one.start : one.end])


def key(text: str) -> str:
    """What candidates are compared by: words in lower case, without signs around them."""
    lower = unicodedata.normalize("NFKC", text).casefold()
    words = (word.strip("\"'\u201c\u201d\u2018\u2019.,;:!?()[]*_`") for word in lower.split())
    return " ".join(word for word in words if word and word not in ("a", "an", "the"))


def _likely(scored: Sequence[tuple[float, tuple[Pointed, ...]]], number: int) -> float:
    """How likely a candidate is right: by its margin, and its share among the candidates."""
    margin, share, constant = config().likely
    total = math.fsum(math.exp(score - scored[0][0]) for score, _ in scored)
    own = scored[number][0] - scored[0][0] - math.log(total)
    odds = margin * scored[number][1][0].margin + share * own + constant
    return 1 / (1 + math.exp(-odds))
