"""Questions that a book's own sentences answer, found by rules without a parser.

Each rule turns a plain sentence into a question whose answer is a span of it: who did something,
the place, time or number at its end, who said a line, a missing word. The questions are many and
rough: they teach how to read natural sentences, not grammar. Text in, `Mined` records out; knows
nothing of tokens.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longctx.profiles.recipe.data.words import words

SENTENCE = re.compile(r"(?:(?<=[.!?] )|(?<=\n))[A-Z][^.!?\n\"“”:;]{30,200}\.(?=\s)")
SPOKEN = re.compile(
    r'[“"]([^”“"\n]{12,120})[,.!?][”"] (?:said|cried|asked|replied|answered|returned|exclaimed|'
    r"whispered|remarked|observed) ((?:(?:Mr|Mrs|Dr)\. |Miss |"
    r"the (?=(?:old|young|man|woman|king|boy|girl|doctor|"
    r"captain|other|priest|stranger)\b))?[A-Z]?[a-z]{2,}(?: [A-Z][a-z]+)?)(?=[,.;])"
)
NAME = (
    r"(?:(?:Mr|Mrs|Dr|St)\. |(?:Miss|Sir|Lord|Lady|Captain|King|Queen|Prince|Count) )?"
    r"[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})?"
)
WHO = re.compile(
    rf"({NAME}) ((?:was|had|went|came|took|gave|made|saw|knew|found|thought|stood|sat|ran|"
    r"told|left|kept|brought|sent|wrote|fell|[a-z]{3,}ed) .*)\."
)
AUXILIARY = re.compile(
    r"((?:The|A|An|His|Her|Their|My|Our|Its|This|These|He|She|They|[A-Z][a-z]+) ?[a-z]{0,12}"
    r"(?: of [a-z]+ ?[a-z]*)?) (was|were|is|are|had|has|could|would|will|must|can|should) (.*)\."
)
TAIL = re.compile(
    r"(.*) (in|at|on|from|to|by|with|for|near|under|into|about|after|before|upon|during)"
    r" ([^,]{3,45})$"
)
NUMBER = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|"
    r"sixty|a hundred|\d[\d,]*) ([a-z]{3,}s)\b"
)
NOT_NAMES, NOT_SUBJECTS = {*words("sentence_starts")}, {*words("no_subjects")}
WHEN = re.compile(
    r"\b(1\d{3}|morning|evening|night|day|week|month|year|noon|midnight|o'clock|summer|winter|"
    r"spring|"
    r"autumn|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|January|February|March|April|"
    r"June|July|August|September|October|November|December)\b"
)


@dataclass(frozen=True)
class Mined:
    """A question about the sentence text[start:end]; the answer is a span of that sentence."""

    start: int
    end: int
    question: str
    answer: str


def lowered(subject: str) -> str:
    """A sentence's first words, as they would be written inside another sentence."""
    first = subject.split()[0]
    return (
        subject[0].lower() + subject[1:]
        if first in NOT_NAMES | {"A", "An", "He", "It", "My"}
        else subject
    )


def ask_who(sentence: str, rng: random.Random) -> tuple[str, str] | None:
    """Mr. Brown sold the cart to ... -> Who sold the cart?"""
    found = WHO.fullmatch(sentence)
    if not found or found[1].split()[0] in NOT_NAMES:
        return None
    return f"Who {shortened(found[2], rng)}?", found[1]


def ask_tail(sentence: str, rng: random.Random) -> tuple[str, str] | None:
    """The castle was built in 1120 -> When was the castle built?"""
    found = AUXILIARY.fullmatch(sentence)
    if not found:
        return None
    subject, verb, rest = lowered(found[1]), found[2], found[3].split(",")[0]
    if found[1].split()[0] in NOT_SUBJECTS:
        return None
    tail = TAIL.fullmatch(rest)
    if not tail:
        return None
    middle, preposition, answer = tail.groups()
    if len(middle) < 4:
        return None
    if WHEN.search(answer) and preposition in {"in", "at", "on", "during", "after", "before"}:
        return f"When {verb} {subject} {middle}?", rng.choice([answer, f"{preposition} {answer}"])
    if preposition in {"in", "at", "near", "under", "upon", "on"} and rng.random() < 0.7:
        return f"Where {verb} {subject} {middle}?", f"{preposition} {answer}"
    word = (
        "whom" if re.match(NAME, answer) and preposition in {"by", "to", "with", "for"} else "what"
    )
    if rng.random() < 0.5:
        return f"{preposition.capitalize()} {word} {verb} {subject} {middle}?", answer
    return f"{word.capitalize()} {verb} {subject} {middle} {preposition}?", answer


def ask_what(sentence: str, rng: random.Random) -> tuple[str, str] | None:
    """The old man could hear the river -> What could the old man do?"""
    found = AUXILIARY.fullmatch(sentence)
    if not found or found[2] in {"was", "were", "is", "are", "had", "has"}:
        return None
    return f"What {found[2]} {lowered(found[1])} do?", found[3].split(",")[0]


def ask_number(sentence: str, rng: random.Random) -> tuple[str, str] | None:
    """... had bought forty horses in the town -> How many horses ...?"""
    found = NUMBER.search(sentence)
    if not found:
        return None
    after = sentence[found.end() : -1].split(",")[0]
    before = lowered(sentence[: found.start()].split(",")[-1].strip() or "it")
    question = rng.choice(
        [f"How many {found[2]}{after}?", f"{before[0].upper()}{before[1:]} how many {found[2]}?"]
    )
    return (question, found[1]) if len(question) > 25 else None


def ask_blank(sentence: str, rng: random.Random) -> tuple[str, str] | None:
    """Part of the sentence with a few words left out, or its continuation."""
    words = sentence[:-1].split()
    if len(words) < 9:
        return None
    gap = rng.randint(1, 4)
    at = rng.randint(4, len(words) - gap)
    left = words[max(0, at - rng.randint(4, 10)) : at]
    answer = " ".join(words[at : at + gap]).strip(",'")
    if rng.random() < 0.4:
        question = rng.choice(["What comes after “{}”?", "How does “{}” go on?", "Complete: “{}”"])
        return question.format(" ".join(left)), answer
    right = words[at + gap : at + gap + rng.randint(3, 8)]
    question = rng.choice(
        ["Fill in the blank: {}", "What is missing in “{}”?", "{} - which words?"]
    )
    return question.format(" ".join([*left, "____", *right])), answer


Rule = Callable[[str, random.Random], tuple[str, str] | None]
RULES: list[tuple[Rule, float]] = [
    (ask_number, 1.0),
    (ask_tail, 0.9),
    (ask_who, 0.9),
    (ask_what, 0.7),
    (ask_blank, 0.12),
]


def shortened(text: str, rng: random.Random) -> str:
    """Drops what follows a comma, and sometimes the last phrase too."""
    text = text.split(",")[0]
    tail = TAIL.fullmatch(text)
    return tail[1] if tail and len(tail[1]) > 15 and rng.random() < 0.4 else text


def mine(text: str, rng: random.Random, rules: Sequence[tuple[Rule, float]] = RULES) -> list[Mined]:
    """The questions found in a text, in sentence order, at most one per sentence.

    Args:
        text: prose, a paragraph on a line.
        rng: draws which rules are tried.
        rules: each with the share of sentences that it is tried on; the first that fits asks.
    """
    found = []
    for match in SENTENCE.finditer(text):
        for rule, share in rules:
            asked = rule(match[0], rng) if rng.random() < share else None
            if asked and 1 < len(asked[1]) < 60:
                found.append(Mined(match.start(), match.end(), *asked))
                break
    for match in SPOKEN.finditer(text):
        if match[2] not in {"he", "she", "they", "that", "who"}:
            verb = rng.choice(["said", "spoke the words"])
            question = f"Who {verb}: “{match[1]}”?"
            found.append(Mined(match.start(), match.end(), question, match[2]))
    return sorted(found, key=lambda record: record.start)
