"""Questions about a paragraph among many others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

from longctx.core.measure.case import Case, CaseQuestion, Span, Task
from longctx.core.measure.eval.filling import Count, counter, fill, spread
from longctx.core.measure.eval.ruler.making import ascending, spans
from longctx.core.measure.eval.ruler.squad import Squad, SquadQuestion
from longctx.core.measure.eval.scorers import string_match_part

MAX_NEW_TOKENS = 32
ASK = "{question} Give only the answer."


def task(name: str, squad: Squad) -> Task:
    """A task made of a file's questions, each asked at most once per length.

    The seed decides which questions are asked, among those whose own paragraphs fit the length; if
    none fits, that is an error before the first case.
    """

    def make(tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
        tokens = counter(tokenizer)
        # All are shuffled: a smaller sample is not the beginning of a larger one.
        mixed = Random(f"{seed}/{name}").sample(squad.questions, len(squad.questions))
        ordered = (_mixed(asked, seed) for asked in mixed)
        fitting = (asked for asked in ordered if tokens(_listed(asked.contexts)) <= length)
        # If none fits, the first reports the length it needs.
        some = list(islice(fitting, count)) or [_mixed(mixed[0], seed)]
        for number, asked in enumerate(some):
            case = f"{name}/{length}/{number}"
            yield _case(case, name, squad, asked, Random(f"{seed}/{case}"), length, tokens)

    return Task(name, make, string_match_part, MAX_NEW_TOKENS)


def _case(
    case: str,
    name: str,
    squad: Squad,
    asked: SquadQuestion,
    draw: Random,
    length: int,
    count: Count,
) -> Case:
    others = _others(squad, asked, draw)
    places = ascending(draw, len(asked.contexts))

    def render(number: int) -> str:
        return _listed(spread(asked.contexts, others[:number], places))

    text = fill(render, count, length, name, len(others))
    query = CaseQuestion(
        name, ASK.format(question=asked.question), asked.answers, _where(text, asked)
    )
    return Case(case, text, (query,))


def _mixed(asked: SquadQuestion, seed: int) -> SquadQuestion:
    """The question with its paragraphs shuffled, in the same order at every length."""
    draw = Random(f"{seed}/{asked.question}")
    return replace(asked, contexts=tuple(draw.sample(asked.contexts, len(asked.contexts))))


def _listed(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(paragraphs, 1)) + "\n"


def _others(squad: Squad, asked: SquadQuestion, draw: Random) -> list[str]:
    """All other paragraphs; those of the same article come first, as they distract more."""
    related = [text for text in asked.related if text not in asked.contexts]
    known = {*related, *asked.contexts}
    rest = [text for text in squad.paragraphs if text not in known]
    return draw.sample(related, len(related)) + draw.sample(rest, len(rest))


def _where(text: str, asked: SquadQuestion) -> tuple[Span, ...]:
    """The first answer that a paragraph of the question contains; empty if none does."""
    for context in asked.contexts:
        for answer in asked.answers:
            if answer in context:
                (whole,), (part,) = spans(text, [context]), spans(context, [answer])
                return (Span(whole.start + part.start, whole.start + part.end),)
    return ()
