"""Questions to a stretch of prose, made by rules, that read well and are clear within it.

Of the rules of `mine`, those that ask who did something, how many there were and who said a line; a
question has to name what it asks about.
"""

import random
import re
from collections import Counter
from dataclasses import replace

from longctx.core.passages.sentences import sentences
from longctx.profiles.recipe.data.asked import Question, Span
from longctx.profiles.recipe.data.mine import Mined, ask_number, ask_who, mine
from longctx.profiles.recipe.data.words import words

TOLD, SAID = 4, 2  # questions to a stretch, at most, of what happened and of what was said
WORDS = (6, 28)
RULES = [(ask_number, 1.0), (ask_who, 1.0)]
SAYING = [
    "Who said: \u201c{}\u201d?",
    "Who says \u201c{}\u201d?",
    "Whose words are these: \u201c{}\u201d?",
    "\u201c{}\u201d - who says that?",
    "By whom is it said, \u201c{}\u201d?",
]
_SAID = re.compile(r"Who (?:said|spoke the words): \u201c(.*)\u201d\?")
_COUNTED = re.compile(r"(?:The |These |Those |All )?\w+ [a-z]{3,}s\b")
_PRONOUNS = {*words("pronouns"), *words("speakers"), "whose", "which"}
_NUMBERS = {*words("numbers"), "three", "hundred", "thousand"}
_NOT_NAMES = {"Mr", "Mrs", "Dr", "Mme", "Miss", "St", "the other"}


def asked_of(text: str, rng: random.Random) -> tuple[Question, ...]:
    """Questions about a text, in its order, with the sentences they were made from."""
    bounds = sentences(text)
    mined = [replace(one, **_whole(one, bounds)) for one in mine(text, rng, RULES)]
    times = Counter(one.question for one in mined)
    good = [one for one in mined if times[one.question] == 1 and one.answer not in _NOT_NAMES]
    told = [one for one in good if not _SAID.fullmatch(one.question) and clear(one, text)]
    said = [reworded(one, rng) for one in good if _SAID.fullmatch(one.question)]
    said = [one for one in said if len(one.question.split()) > WORDS[0] + 3]
    taken = rng.sample(told, min(len(told), TOLD)) + rng.sample(said, min(len(said), SAID))
    return tuple(
        Question(one.question, one.answer, ((one.start, one.end),))
        for one in sorted(taken, key=lambda one: one.start)
    )


def clear(mined: Mined, text: str) -> bool:
    """Whether a question can be told from others of the same book, and was understood rightly."""
    found = re.findall(r"[\w'\u2019-]+", mined.question)
    if not WORDS[0] <= len(found) <= WORDS[1] or found[-1] in _NOT_NAMES:
        return False
    if _PRONOUNS & {word.lower() for word in found} or mined.answer.lower() in _NUMBERS:
        return False
    sentence = text[mined.start : mined.end]
    if mined.question.startswith("How many"):
        return _COUNTED.match(sentence) is not None and len(found) >= 8
    # A title before the name, or another subject, has been cut off where the answer is not first.
    return mined.question.startswith("Who ") and sentence.startswith(mined.answer)


def reworded(mined: Mined, rng: random.Random) -> Mined:
    """A question for the speaker of a line, asked in another way."""
    line = _SAID.sub(r"\1", mined.question)
    return replace(mined, question=rng.choice(SAYING).format(line))


def _whole(mined: Mined, bounds: list[Span]) -> dict[str, int]:
    """The sentences that a mined question touches."""
    touched = [span for span in bounds if span[0] < mined.end and mined.start < span[1]]
    return {"start": touched[0][0], "end": touched[-1][1]}
