"""Questions on a paragraph that stands among many others."""

from collections.abc import Iterator
from random import Random
from typing import Any

from longctx.core.eval.case import Case, Query, Span
from longctx.core.eval.filling import Count, counter, fill, spread
from longctx.core.eval.ruler.making import ascending, spans
from longctx.core.eval.ruler.squad import Asked, Squad
from longctx.core.eval.scorers import string_match_part
from longctx.core.eval.task import Task

MAX_NEW_TOKENS = 32
ASK = "{question} Give only the answer."


def task(name: str, squad: Squad) -> Task:
    """A task of a file's questions, of which each is asked at most once for a length.

    Which questions are asked depends on the seed alone, and is the same at every length.
    """

    def make(tokenizer: Any, length: int, count: int, seed: int) -> Iterator[Case]:
        tokens = counter(tokenizer)
        some = min(count, len(squad.questions))
        chosen = Random(f"{seed}/{name}").sample(squad.questions, some)
        for number, asked in enumerate(chosen):
            case = f"{name}/{length}/{number}"
            yield _case(case, name, squad, asked, Random(f"{seed}/{case}"), length, tokens)

    return Task(name, make, string_match_part, MAX_NEW_TOKENS)


def _case(
    case: str, name: str, squad: Squad, asked: Asked, draw: Random, length: int, count: Count
) -> Case:
    others = _others(squad, asked, draw)
    own = draw.sample(asked.contexts, len(asked.contexts))
    places = ascending(draw, len(own))

    def render(number: int) -> str:
        texts = spread(own, others[:number], places)
        return "\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(texts, 1)) + "\n"

    text = fill(render, count, length, name, len(others))
    query = Query(name, ASK.format(question=asked.question), asked.answers, _where(text, asked))
    return Case(case, text, (query,))


def _others(squad: Squad, asked: Asked, draw: Random) -> list[str]:
    """All other paragraphs: those of the same article first, which are the harder ones."""
    related = [text for text in asked.related if text not in asked.contexts]
    known = {*related, *asked.contexts}
    rest = [text for text in squad.paragraphs if text not in known]
    return draw.sample(related, len(related)) + draw.sample(rest, len(rest))


def _where(text: str, asked: Asked) -> tuple[Span, ...]:
    """The first answer where a paragraph of the question has it; nothing where none has."""
    for context in asked.contexts:
        for answer in asked.answers:
            if answer in context:
                (whole,), (part,) = spans(text, [context]), spans(context, [answer])
                return (Span(whole.start + part.start, whole.start + part.end),)
    return ()
