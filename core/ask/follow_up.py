"""Questions that refer to the one before: which do, and what is asked in their place.

A question is searched for, and read by the model, in its own words alone. One that refers to an
earlier one is put behind it and its answer, as one text. Imports nothing heavy.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

MOST = 3  # earlier questions that one is put behind
LONGEST = 200  # characters of an earlier answer
_PRONOUN = re.compile(
    r"\b(?:he|him|his|she|her|hers|it|its|they|them|their|theirs)\b|\b(?:that|then|there)[?.! ]*$",
    re.I,
)
_NAME = re.compile(r"(?<=\s)[^\W\d_a-z]\w+")  # a capital letter, not at the beginning
_OPENING = re.compile(r"(?:and|but|so|what about|how about|what else|who else)\b", re.I)
_NONE = re.compile(r"\bnot in the (?:text|document)\b", re.I)  # as `tiny` says it
_ALONE = 3  # words of a question such as "Since when?", which says nothing by itself


@dataclass(frozen=True)
class Exchange:
    """A question in the user's words, and the answer that was given."""

    question: str
    answer: str


def refers_back(question: str) -> bool:
    """Whether an English question seems to refer to the one before.

    It does where it has a pronoun and no name before that, begins with "and" or the like, or has at
    most three words and no name.

    Args:
        question: the user's words.
    """
    words = question.strip()
    name, pronoun = _NAME.search(words), _PRONOUN.search(words)
    if pronoun and (name is None or name.start() > pronoun.start()):
        return True
    if _OPENING.match(words):
        return True
    return name is None and 0 < len(words.split()) <= _ALONE and words.endswith("?")


def joined(question: str, before: Sequence[Exchange]) -> str:
    """The text to search for and to ask: earlier questions with their answers, and the question.

    Args:
        question: the user's words.
        before: the earlier exchanges, in their order; the last few count. An answer that there is
            none is left out.
    """
    if not before or not question.strip():
        return question
    parts: list[str] = []
    for exchange in before[-MOST:]:
        parts.append(exchange.question)
        if not _NONE.search(exchange.answer):
            parts.append(_cut(exchange.answer))
    return " ".join([*(_ended(part) for part in parts if part.strip()), question.strip()])


def _cut(answer: str) -> str:
    """The beginning of an answer, in whole words."""
    told = " ".join(answer.split())
    return told if len(told) <= LONGEST else told[:LONGEST].rpartition(" ")[0] or told[:LONGEST]


def _ended(text: str) -> str:
    """The text with a full stop, if it ends with no sign."""
    told = text.strip()
    return told if unicodedata.category(told[-1]).startswith("P") else f"{told}."
