"""Chooses, of many questions to one sentence, those that are clear without it.

People wrote them looking at the sentence alone: "What color is it?" says nothing beside others.
"""

import re
from collections.abc import Sequence

from longctx.profiles.recipe.data.asked import Question
from longctx.profiles.recipe.data.sources.context import Context
from longctx.profiles.recipe.data.sources.evidence import stems
from longctx.profiles.recipe.data.words import words

LEAST = 5  # words of a question
MOST = 4  # questions to a sentence
_PRONOUNS = {*words("pronouns")}


def clear(asked: Question, sentence: str, others: Sequence[str]) -> bool:
    """Whether a question names what it asks about, and its sentence rather than another one."""
    found = re.findall(r"[\w'-]+", asked.text.lower())
    if len(found) < LEAST or _PRONOUNS & {*found, str(asked.answer).lower()}:
        return False
    named = stems(asked.text)
    shared = len(named & stems(sentence))
    return shared >= 2 and all(len(named & stems(other)) < shared for other in others)


def chosen(context: Context, others: Sequence[str]) -> Context:
    """A sentence with its clearest questions, no two with the same answer.

    Args:
        context: a sentence and all that was asked about it.
        others: the other sentences of its document.
    """
    good = [one for one in context.questions if clear(one, context.text, others)]
    good.sort(key=lambda one: -len(stems(one.text) & stems(context.text)))
    by_answer: dict[str, Question] = {}
    for one in good:
        by_answer.setdefault(str(one.answer).lower().removeprefix("the "), one)
    return Context(context.text, tuple(by_answer.values())[:MOST])
