"""Documents with other names and numbers, so that there is no gain in learning them by heart."""

import calendar
import random
import re
from itertools import pairwise

from longctx.profiles.recipe.data.asked import AskedDocument, Question
from longctx.profiles.recipe.data.made.pools import listed
from longctx.profiles.recipe.data.made.values import MadeValues

SHARE = 0.7  # of the names and numbers
# A word within a sentence, or after a title, that begins with a capital.
NAME = re.compile(r"(?:(?<=[a-z,;] )|(?<=\b[MD]r\. )|(?<=\bMrs\. ))[A-Z][a-z]{2,}\b")
NUMBER = re.compile(r"\b\d{2,7}\b")
KEPT = {*calendar.month_name, *calendar.day_name}


def renamed(document: AskedDocument, rng: random.Random) -> AskedDocument:
    """A document, its questions and answers with the same other names and numbers throughout."""
    others = exchanges(document.text, rng)
    if not others:
        return document
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, others)) + r")\b")

    def changed(text: str) -> str:
        return pattern.sub(lambda match: others[match[1]], text)

    # No name crosses the bounds of the evidence, so the text is changed from bound to bound.
    cuts = sorted(
        {0, len(document.text), *(c for q in document.questions for s in q.evidence for c in s)}
    )
    parts, places = [], {0: 0}
    for start, end in pairwise(cuts):
        parts.append(changed(document.text[start:end]))
        places[end] = places[start] + len(parts[-1])
    questions = tuple(
        Question(
            changed(one.text),
            one.answer and changed(one.answer),
            tuple((places[a], places[b]) for a, b in one.evidence),
        )
        for one in document.questions
    )
    return AskedDocument(document.kind, "".join(parts), questions)


def exchanges(text: str, rng: random.Random) -> dict[str, str]:
    """New words for most names of a text, and digits for most of its numbers."""
    values = MadeValues(listed(), rng)
    plain = {*re.findall(r"\b[a-z]{3,}\b", text)}
    names = {word for word in NAME.findall(text) if word.lower() not in plain} - KEPT
    makers = [values.make_first, values.make_last]
    others = {word: rng.choice(makers)() for word in sorted(names) if rng.random() < SHARE}
    for number in sorted({*NUMBER.findall(text)}):
        if rng.random() < SHARE:
            others[number] = number[0] + values.digits(len(number) - 1, len(number) - 1)
    return others
