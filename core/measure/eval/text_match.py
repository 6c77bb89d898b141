"""How well an answer's words match accepted ones: exact match, F1, and containment.

Exact match and F1 compare as SQuAD's evaluation does (P. Rajpurkar et al., 2016): in lower case,
without punctuation, without the articles a, an and the, and with single spaces. Unlike in SQuAD,
punctuation is Unicode's, not only ASCII's.
"""

import re
import string
import unicodedata
from collections import Counter

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
Accepted = tuple[str, ...]


def exact_match(accepted: Accepted, answer: str) -> float:
    """1 if the answer is an accepted one, both normalised; else 0."""
    given = normalized(answer)
    return float(any(normalized(one) == given for one in accepted))


def f1(accepted: Accepted, answer: str) -> float:
    """The best F1 over the accepted answers, of normalised words with their counts.

    If one side has no words left, the score is 1 if the other side has none either, else 0.
    """
    given = normalized(answer).split()
    return max((_f1(normalized(one).split(), given) for one in accepted), default=0.0)


def contained(accepted: Accepted, answer: str) -> float:
    """1 if the answer contains an accepted one as whole words, in any case; else 0.

    Punctuation counts; spacing does not.
    """
    text = _spaced(answer)
    return float(any(holds(text, _spaced(one)) for one in accepted))


def holds(text: str, words: str) -> bool:
    """Whether a text contains these words, whole and in any case; False if there are no words."""
    if not words:
        return False
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None


def occurs(value: str, folded: str) -> bool:
    """Whether a text contains a value, in any case; a value without digits, as whole words.

    Args:
        value: the value to look for.
        folded: the text, case-folded.
    """
    value = value.casefold()
    return value in folded and (any(map(str.isdigit, value)) or holds(folded, value))


def normalized(text: str) -> str:
    """A text in the form that exact match and F1 compare."""
    plain = "".join(c for c in text.lower() if not _is_punctuation(c))
    return _spaced(_ARTICLES.sub(" ", plain))


def _f1(accepted: list[str], given: list[str]) -> float:
    if not accepted or not given:
        return float(accepted == given)
    common = (Counter(accepted) & Counter(given)).total()
    return 2 * common / (len(accepted) + len(given))


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _spaced(text: str) -> str:
    return " ".join(text.split())
