"""Verdicts of the rule for people to read: how often it errs is counted by hand."""

import random
from collections.abc import Iterator, Sequence

from public_sets import measures, rule
from public_sets.items import PublicSet, Question
from public_sets.report import System


def drawn(
    found: PublicSet,
    questions: Sequence[Question],
    systems: Sequence[System],
    said: str,
    by: str | None,
    count: int,
    seed: int,
) -> Iterator[str]:
    """Answers of a verdict, drawn at random from those of all systems.

    Args:
        found: the set.
        questions: of which answers are drawn.
        systems: whose answers.
        said: the verdict.
        by: what decided it: `figures`, `words` or `refusal`; None: any.
        count: the most answers.
        seed: the same one draws the same answers.
    """
    rows = [
        (question, system.name, answer)
        for question in questions
        for system in systems
        if (answer := system.results.get(question.name, {}).get("answer")) is not None
    ]
    random.Random(seed).shuffle(rows)
    number = 0
    for question, system, answer in rows:
        verdict = measures.verdict(found, question, answer)
        if number < count and verdict.said == said and by in (None, verdict.by):
            number += 1
            yield (
                f"{number}. {question.name}, {system}: {verdict.said} by {verdict.by}\n"
                f"   question: {question.text}\n   right:    {question.right}\n"
                f"   answer:   {rule.first_words(answer, question.words)}"
            )
