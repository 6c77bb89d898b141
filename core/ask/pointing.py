"""An answer without a model that writes: the reader points at it in the best passages.

The passages are those that a search ranks first; no keys, values or embeddings of the documents are
needed. The answer is a stretch of one of them, word for word, or "not in the text".
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from longctx.core.ask.answer import Answer, Possible
from longctx.core.ask.based import Based
from longctx.core.ask.clock import Clock
from longctx.core.ask.gather import passage_of
from longctx.core.ask.place import Place, placed
from longctx.core.ask.quoting import Quote
from longctx.core.ask.refusing import PHRASE
from longctx.core.ask.sentence import quoted_sentence
from longctx.core.passages.matching import Query
from longctx.core.passages.quotable import Excerpt, Span
from longctx.core.passages.whole import is_list, wants_steps, wants_whole, whole_answer
from longctx.core.reader import weights
from longctx.core.reader.choosing import Candidate, choose
from longctx.core.reader.pointing import knows, reader, to_be_read
from longctx.core.retrieve.best_passages import run_of
from longctx.core.retrieve.evidence import NO, UNSURE, YES, judged
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.stretches import Stretch, stretch
from longctx.core.store.document import Document

_log = logging.getLogger(__name__)

ALSO = 4  # other answers that are listed
PLACES = 16  # further places of an answer that are listed
NAME = "point"  # as the decode policy of such an answer


@dataclass(frozen=True)
class Searched:
    """The documents, and how well their passages fit a question.

    Attributes:
        documents: open, in order.
        index: their passages, and their words.
        ranked: their passages with scores.
        words: what was searched for.
    """

    documents: Sequence[Document]
    index: PassageIndex
    ranked: Ranked
    words: str


def pointed_answer(
    searched: Searched,
    question: str,
    device: str,
    clock: Clock,
    *,
    most: int | None = None,
    tokens: int | None = None,
    anyway: bool = True,
    on_text: Callable[[str], None] = lambda text: None,
) -> tuple[Answer, Based]:
    """The answer that the reader points at.

    Args:
        searched: the documents and their ranked passages.
        question: the user's words, by themselves or behind those before.
        device: where the reader computes.
        clock: of the question.
        most: passages to read; None: 32 on a CPU, 64 on a GPU.
        tokens: of the passages together, as the model that read the documents counts them; the
            first passage always counts; None: any number.
        anyway: give the likeliest stretch also where the text seems to have no answer.
        on_text: receives the answer.

    Raises:
        StateMismatch: a document is damaged.
        LongctxError: the reader's files are missing or damaged.
    """
    read = _read(searched, question, device, clock, most, tokens)
    candidates = read.candidates
    found, evidence = _verdict(searched, candidates, read.known)
    spans = [_span(read.stretches, one) for one in candidates[: ALSO + 1]]
    pointed = spans[0] if spans and (anyway or found != NO) else None
    if pointed is not None and (wants_whole(question) or not read.known):
        spans[0] = _whole(pointed, wants_steps(question))
    text = PHRASE if pointed is None else _line(spans[0].text)
    on_text(text)
    values = _gathered(searched, read, pointed is not None, question)
    passages, name = values.pop("passages"), weights.config().name
    answer = Answer(
        question=question,
        found=found,
        evidence=evidence,
        documents=[document.manifest.name for document in searched.documents],
        passages=passages,
        tokens={"question": 0, "answer": len(text.split()), "dropped": 0, **values},
        timings=clock.timings(),
        state={"answer_model": name, "read": read.as_dict(values["gathered"])},
        answer=text,
        stop="end",
        policy={"name": NAME},
        attended_per_step=None,
        refreshes=None,
        held=None,
        reassigned=False,
        narrowed=False,
        tokens_per_s=None,
    )
    _log.info("%s read %s passages: %s", name, len(passages), answer.timings)
    quotes = [_quote(*pair, read.stretches) for pair in zip(spans, candidates, strict=False)]
    if pointed is not None and spans[0] is not pointed:
        quotes[0] = replace(quotes[0], also=())  # these are places of the pointed words
    possible = [
        Possible(quote, round(one.likely, 4))
        for quote, one in zip(quotes, candidates, strict=False)
    ]
    if pointed is not None:
        sentence, likely = quoted_sentence(pointed), possible.pop(0).likely
        answer = replace(answer, quote=quotes[0], sentence=sentence, likely=likely)
    if not read.known:
        possible, answer = [], replace(answer, likely=None)
    answer = replace(answer, also_possible=tuple(possible[:ALSO]))
    return answer, Based(tuple(searched.documents), searched.ranked)


@dataclass(frozen=True)
class _Read:
    """What was read.

    Attributes:
        numbers: of the passages, best first by the search.
        stretches: the passages.
        candidates: what they may answer, best first.
        known: the reader knows the language of the best passage.
    """

    numbers: list[int]
    stretches: list[Stretch]
    candidates: list[Candidate]
    known: bool

    def as_dict(self, tokens: int) -> dict[str, Any]:
        """What is reported of it, of so many tokens."""
        values = {"tokens": tokens, "passages": len(self.numbers), "order": "rank"}
        return {**values, "language_known": self.known}


def _read(
    searched: Searched,
    question: str,
    device: str,
    clock: Clock,
    most: int | None,
    tokens: int | None,
) -> _Read:
    """Reads the best passages; arguments as of `pointed_answer`."""
    ranked = searched.ranked
    numbers = _best(ranked, most or to_be_read(device), tokens)
    stretches = [stretch(searched.documents, ranked.passages, number) for number in numbers]
    clock.mark("gather_s")
    pointed = reader(device).point(question, [one.to_read() for one in stretches])
    search = ranked.scores[numbers] if numbers else np.zeros(0)
    candidates = choose(question, [one.text for one in stretches], search, pointed)
    known = not stretches or _known(stretches[0])
    if not known:  # the search knows better where to look
        candidates.sort(key=lambda candidate: candidate.places[0].passage)
    clock.mark("first_token_s")
    return _Read(numbers, stretches, candidates, known)


def _best(ranked: Ranked, most: int, tokens: int | None) -> list[int]:
    """The best passages, best first."""
    order = np.argsort(-ranked.scores, kind="stable")[:most]
    if tokens is None or not len(order):
        return order.tolist()
    sums = np.cumsum(ranked.passages.lengths[order])
    return order[: max(1, int((sums <= tokens).sum()))].tolist()


def _known(one: Stretch) -> bool:
    """Whether the reader knows the language of a passage."""
    return knows(one.text, one.document.manifest.language)


def _verdict(
    searched: Searched, candidates: Sequence[Candidate], known: bool
) -> tuple[str, float | None]:
    """Whether the text answers, and the share of the question's words in it.

    By the reader; in a language that it does not know, by the words.
    """
    by_words, evidence = judged(searched.index, searched.words)
    if not known:
        return UNSURE if by_words == YES else by_words, evidence
    if not candidates:
        return NO, evidence
    likely, config = candidates[0].likely, weights.config()
    verdict = YES if likely >= config.found else UNSURE if likely >= config.unsure else NO
    return verdict, evidence


def _span(stretches: Sequence[Stretch], candidate: Candidate) -> Span:
    """The stretch at which a candidate stands first."""
    place = candidate.places[0]
    return _at(stretches[place.passage], place.start, place.end)


def _at(one: Stretch, start: int, end: int) -> Span:
    """Characters [start, end) of a passage, as bytes of its source."""
    excerpt = Excerpt.of(one.document, one.source, one.start, one.end)
    snippet = excerpt.snippet
    low, high = excerpt.low + start, excerpt.low + end
    return Span(excerpt, snippet.byte(low), snippet.byte(high), snippet.text[low:high])


def _whole(span: Span, steps: bool) -> Span:
    """The sentence that a span stands in, or the list where steps are wanted."""
    document, source = span.excerpt.document, span.excerpt.source
    start, end = whole_answer(document, source, span.start, span.end, steps)
    excerpt = Excerpt.of(document, source, start, end)
    snippet = excerpt.snippet
    text = snippet.text[excerpt.low : snippet.since(end)]
    return Span(excerpt, start, end, text)


def _line(text: str) -> str:
    """The answer on one line; a list on a line for each of its own."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join(line for line in lines if line) if is_list(text) else " ".join(lines)


def _quote(span: Span, candidate: Candidate, stretches: Sequence[Stretch]) -> Quote:
    """Where a candidate stands, and where else."""

    def place(span: Span) -> dict[str, Any]:
        return placed(span.excerpt.document, span.excerpt.source, span.start, span.end)

    others = [_at(stretches[p.passage], p.start, p.end) for p in candidate.places[1 : PLACES + 1]]
    also = tuple(Place(**place(other)) for other in others)
    return Quote(**place(span), text=span.text, also=also)


def _gathered(searched: Searched, read: _Read, answered: bool, question: str) -> dict[str, Any]:
    """The passages that were read, that of the answer first, and how many tokens they have."""
    ranked = searched.ranked
    table, first_tokens = ranked.passages, ranked.passages.first_tokens
    query = Query(question, searched.index.word_weights(question), None, searched.index.languages)
    order = list(read.numbers)
    if answered:
        order.insert(0, order.pop(read.candidates[0].places[0].passage))
    found = []
    for number in order:
        owner, (first, end) = int(table.documents[number]), run_of(table, number)
        low, document = int(first_tokens[owner]), searched.documents[owner]
        passage = passage_of(document, first - low, end - low, torch.zeros(0), query)
        found.append(replace(passage, score=round(float(ranked.scores[number]), 6)))
    gathered = sum(int(table.lengths[number]) for number in order)
    return {"passages": found, "gathered": gathered, "document": int(first_tokens[-1])}
