"""Answers without what their questions say already: to "How many crowns?", "353" of "353 crowns".

People repeat the question's noun when they answer each other; a reader of the value does not want
it, and no measure of question answering accepts it. Knows English, no source's particulars.
"""

import re

from longctx.profiles.recipe.data.sources.evidence import stems
from longctx.profiles.recipe.data.words import words

NAMED = 4  # words after "how many" or "which" that may name what is asked for
_THING = re.compile(
    r"\b(?:how (?:many|much)|(?:what|which) (?:kinds?|types?|sorts?|colou?rs?) of|what|which)"
    r"\s+(.+)",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:why|how(?! (?:many|much)))\b", re.IGNORECASE)
_LEADING = re.compile(
    r"(?:(?:in|on|at)\s+(?!(?:least|most|all|order)\b)|because\s+)", re.IGNORECASE
)
_ARTICLE = re.compile(r"(?:an?|the)\s+", re.IGNORECASE)
_ENDS_NOUN = {*words("common")}


def shortest(question: str, answer: str) -> str:
    """The part of an answer that its question asks for.

    Leaves out a preposition of place or time at its start, unless the question asks why or how; and
    at its end, words in lower case by which the question names the thing. What is left of such a
    name has a figure or a capital, or tells the kind that was asked for.
    """
    kept = answer.strip()
    if not _REASON.search(question):
        kept = kept[_LEADING.match(kept).end() :] if _LEADING.match(kept) else kept
    thing = _THING.search(question)
    if not thing:
        return kept
    short = _without(kept, stems(" ".join(_noun(thing[1]))))
    of_kind = re.search(r" of$", question[thing.start() : thing.start(1)].rstrip()) is not None
    if short == kept or not (of_kind or re.search(r"[\dA-Z]", short)):
        return kept
    return _ARTICLE.sub("", short, count=1) if of_kind and _ARTICLE.match(short) else short


def _without(answer: str, named: set[str]) -> str:
    """An answer without the last words that name the thing; the answer if nothing would be left."""
    own = answer.split()
    while own and own[-1].islower() and stems(own[-1]) and stems(own[-1]) <= named:
        own.pop()
    left = " ".join(own).rstrip(",;")
    return left if stems(left) else answer


def _noun(text: str) -> list[str]:
    """The first words of a text, up to a verb: "crowns" of "crowns did it cost"."""
    found: list[str] = []
    for word in re.findall(r"[\w'-]+", text)[:NAMED]:
        if word.lower() in _ENDS_NOUN:
            break
        found.append(word)
    return found
