"""Which sentences of a text must be read to give an answer. Knows words, not meaning."""

import re

from longctx.core.passages.sentences import sentences
from longctx.profiles.recipe.data.asked import Span
from longctx.profiles.recipe.data.words import words

STEM = 5  # letters: "asked" and "asking" count as one word
_COMMON = {*words("common")}


def stems(text: str) -> set[str]:
    """The beginnings of a text's words, without those that every text has."""
    found = re.findall(r"[^\W_]+", text.lower())
    return {word[:STEM] for word in found if word not in _COMMON}


def of_span(text: str, start: int, end: int) -> Span:
    """The sentences that [start, end) touches, as one span."""
    touched = [span for span in sentences(text) if span[0] < end and start < span[1]]
    return (touched[0][0], touched[-1][1]) if touched else (start, end)


def located(text: str, answer: str, question: str) -> tuple[str, Span] | None:
    """An answer in the words of the text, and the sentences it stands in.

    Args:
        text: where to look, in any case; only whole words count.
        answer: looked for without the full stop at its end.
        question: of several places, that whose sentences share most words with it is taken.

    Returns:
        None if the text does not have the answer.
    """
    wanted, asked = answer.strip().rstrip(".").strip(), stems(question)
    if not wanted:
        return None
    places = re.finditer(rf"(?<!\w){re.escape(wanted)}(?!\w)", text, re.IGNORECASE)
    found = [(match[0], of_span(text, *match.span())) for match in places]
    return max(found, key=lambda one: len(asked & stems(text[slice(*one[1])])), default=None)


def likely(text: str, question: str, answer: str) -> tuple[Span, ...]:
    """The one or two sentences that share most words with a question and its free-form answer.

    Words of the answer count twice. A second sentence is taken if it adds two words or more; the
    whole text, if no sentence shares a word.
    """
    weight = dict.fromkeys(stems(question), 1) | dict.fromkeys(stems(answer), 2)
    left = {span: stems(text[slice(*span)]) & weight.keys() for span in sentences(text)}
    chosen: list[Span] = []
    for least in (1, 2):
        best = max(left, key=lambda span: sum(weight[stem] for stem in left[span]))
        if len(left[best]) >= least:
            chosen.append(best)
            left = {span: shared - left[best] for span, shared in left.items()}
    return tuple(sorted(chosen)) or ((0, len(text)),)
