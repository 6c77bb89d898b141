"""Words the facts of a part of a file as questions that have one answer in it."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from longctx.profiles.recipe.data.asked import Question, Span
from longctx.profiles.recipe.data.sources.code.source import Fact
from longctx.profiles.recipe.data.sources.code.verbs import VERBS, WORDINGS, third

MOST = 12  # questions to a part
MOST_OF_KIND = 3
COMMON = {  # kinds that every file is full of: one of each, where others leave room
    *("dull_default", "parameter_type", "result_type", "imported", "alias", "decorator"),
}
LONGEST = 160  # characters of a question


def asked(facts: Iterable[Fact], spans: Mapping[int, Span], rng: random.Random) -> list[Question]:
    """Questions about facts, of many kinds, with the lines to be read.

    Args:
        facts: all of a part of a file; a wording that fits two of them is not used.
        spans: characters of each line of the part, by its number.
        rng: draws facts and wordings.
    """
    worded = [(fact, wording) for fact in facts for wording in _wordings(fact)]
    answers: dict[str, set[str]] = {}
    for fact, wording in worded:
        answers.setdefault(wording.format(**fact.slots).lower(), set()).add(fact.answer)
    rng.shuffle(worded)
    worded.sort(key=lambda one: one[0].kinds[0] in COMMON)
    questions, done, kinds = [], set(), Counter()
    for fact, wording in worded:
        plain = wording.format(**fact.slots)
        kind = fact.kinds[0]
        if len(answers[plain.lower()]) > 1 or id(fact) in done or kinds[kind] == most(kind):
            continue
        text = wording.format(**_with_verb(fact.slots, rng))
        if len(text) <= LONGEST and fact.answer.lower() not in text.lower():
            questions.append(Question(text, fact.answer, joined(fact.lines, spans)))
            done.add(id(fact))
            kinds[kind] += 1
    return questions[:MOST]


def most(kind: str) -> int:
    """How many questions of a kind a part may have."""
    return 1 if kind in COMMON else MOST_OF_KIND


def joined(lines: Iterable[int], spans: Mapping[int, Span]) -> tuple[Span, ...]:
    """The spans of lines, those of neighbours as one."""
    found: list[Span] = []
    last = -1
    for line in sorted({*lines}):
        start, end = spans[line]
        if line == last + 1:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
        last = line
    return tuple(found)


def _wordings(fact: Fact) -> Iterator[str]:
    for kind in fact.kinds:
        yield from WORDINGS[kind]


def _with_verb(slots: Mapping[str, str], rng: random.Random) -> Mapping[str, str]:
    """Slots with another verb of the same meaning."""
    if slots.get("do") not in VERBS:
        return slots
    verb, _, particle = rng.choice(VERBS[slots["do"]]).partition(" ")
    return {
        **slots,
        "do": f"{verb} {particle}".strip(),
        "does": f"{third(verb)} {particle}".strip(),
    }
