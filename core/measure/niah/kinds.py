"""Needles: facts of several kinds (docs/needles.md).

A maker draws one needle; it knows nothing of other needles, the text around it or tokens.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from longctx.core.measure.niah import words

NEAR = 3  # lines whose keys differ from a `multikey` needle's in one word


@dataclass(frozen=True)
class Needle:
    """A fact and the question for it.

    Attributes:
        kind: results are counted by kind.
        lines: consecutive lines that state the fact.
        question: what is asked.
        value: the only right answer.
        near: distractors, lines with nearly the same key; they are elsewhere in the text.
        secrets: the value, and whatever else no other line of the haystack may contain.
        wording: a question that a haystack may have only once; empty: no such limit.
    """

    kind: str
    lines: tuple[str, ...]
    question: str
    value: str
    near: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    wording: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Its lines, its distractors and its question."""
        return (*self.lines, *self.near, self.question)


Maker = Callable[[random.Random, str], Needle]  # gets a city that no other needle has


def digits(draw: random.Random, count: int) -> str:
    """A number of `count` digits."""
    return str(draw.randrange(10 ** (count - 1), 10**count))


def passkey(draw: random.Random, city: str) -> Needle:
    """Five digits, with a request to remember them."""
    key = digits(draw, 5)
    line = f"The pass key of {city} is {key}. Remember it."
    return Needle("passkey", (line,), f"What is the pass key of {city}?", key)


def number(draw: random.Random, city: str) -> Needle:
    """Seven digits."""
    value = digits(draw, 7)
    line = f"The special magic number for {city} is {value}."
    return Needle("number", (line,), f"What is the special magic number for {city}?", value)


def multikey(draw: random.Random, city: str) -> Needle:
    """Seven digits for a key of three words; distractors have keys with two of these words."""
    key = [draw.choice(words.COLOURS), draw.choice(words.ANIMALS), draw.choice(words.THINGS)]
    keys = ["-".join(key)]
    while len(keys) <= NEAR:
        place = draw.randrange(len(key))
        other = draw.choice((words.COLOURS, words.ANIMALS, words.THINGS)[place])
        near = "-".join([*key[:place], other, *key[place + 1 :]])
        keys += [near] * (near not in keys)
    values = draw.sample(range(10**6, 10**7), len(keys))
    line, *near = (
        f"The special magic number for {k} is {v}." for k, v in zip(keys, values, strict=True)
    )
    question = f"What is the special magic number for {keys[0]}?"
    secrets = (*map(str, values), *keys)
    return Needle("multikey", (line,), question, str(values[0]), tuple(near), secrets)


def uuid(draw: random.Random, city: str) -> Needle:
    """A UUID as the value for a UUID as the key."""
    key, value = _uuid(draw), _uuid(draw)
    line = f"The special magic UUID for {key} is {value}."
    question = f"What is the special magic UUID for {key}?"
    return Needle("uuid", (line,), question, value, secrets=(value, key))


def date(draw: random.Random, city: str) -> Needle:
    """A day."""
    day = f"{draw.randint(1, 28)} {draw.choice(words.MONTHS)} {draw.randint(1701, 1999)}"
    line = f"The bridge of {city} was opened on {day}."
    return Needle("date", (line,), f"On what date was the bridge of {city} opened?", day)


def name(draw: random.Random, city: str) -> Needle:
    """A person's first and last name."""
    person = f"{draw.choice(words.FIRST_NAMES)} {draw.choice(words.LAST_NAMES)}"
    line = f"The head librarian of {city} is {person}."
    return Needle("name", (line,), f"Who is the head librarian of {city}?", person)


def phrase(draw: random.Random, city: str) -> Needle:
    """Three words."""
    parts = draw.choice(words.COLOURS), draw.choice(words.ANIMALS), draw.choice(words.THINGS)
    value = " ".join(parts)
    line = f"The secret phrase of {city} is {value}."
    return Needle("phrase", (line,), f"What is the secret phrase of {city}?", value)


def _uuid(draw: random.Random) -> str:
    text = f"{draw.getrandbits(128):032x}"
    return "-".join((text[:8], text[8:12], f"4{text[13:16]}", f"a{text[17:20]}", text[20:]))


MAKERS: dict[str, Maker] = {
    maker.__name__: maker for maker in (passkey, number, multikey, uuid, date, name, phrase)
}
