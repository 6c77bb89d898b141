"""Questions to a stretch of prose, made by rules, that read well and are clear within it.

Of the rules of `mine`, those that ask for who, how many, when and where; a question has to name
what it asks about.
"""

import random
import re

from longctx.profiles.recipe.data.asked import Question
from longctx.profiles.recipe.data.mine import Mined, ask_number, ask_tail, ask_who, mine
from longctx.profiles.recipe.data.words import words

MOST = 5  # questions to a stretch
WORDS = (6, 28)
RULES = [(ask_number, 1.0), (ask_tail, 1.0), (ask_who, 1.0)]
_ASKING = re.compile(r"(How many|When|Where|Who) ")
_SAID = re.compile(r"Who (?:said|spoke the words): “(.*)”\?")
_PRONOUNS = {*words("pronouns"), *words("speakers")}
_TITLES = {"Mr", "Mrs", "Dr", "Mme", "Miss", "St", "the other"}


def asked_of(text: str, rng: random.Random) -> tuple[Question, ...]:
    """Questions about a text, in its order, with the sentences they were made from."""
    mined = mine(text, rng, RULES)
    times = [one.question for one in mined]
    good = [one for one in mined if clear(one) and times.count(one.question) == 1]
    said = [one for one in good if _SAID.fullmatch(one.question)]
    told = [one for one in good if one not in said]
    taken = rng.sample(told, min(len(told), MOST))
    taken += rng.sample(said, min(len(said), max(1, MOST - 1 - len(taken))))
    return tuple(
        Question(one.question, one.answer, ((one.start, one.end),))
        for one in sorted(taken, key=lambda one: one.start)
    )


def clear(mined: Mined) -> bool:
    """Whether a question begins as people ask, and can be told from others of the same book."""
    found = re.findall(r"[\w'\u2019-]+", mined.question)
    if not WORDS[0] <= len(found) <= WORDS[1] or mined.answer in _TITLES:
        return False
    if said := _SAID.fullmatch(mined.question):
        return len(said[1].split()) >= WORDS[0]
    if not _ASKING.match(mined.question) or _PRONOUNS & {word.lower() for word in found}:
        return False
    return any(word[0].isupper() for word in found[1:]) or len(found) >= 9
