"""Answers that are exact stretches of the gathered passages, or the phrase that there is none.

The likeliest stretch under the model is found by `core/decode/quoting/`; what is cited are the
source's bytes. Which tokenizer read the document does not matter: only the text does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from longctx.core.ask.answering import Answering, Begun
from longctx.core.ask.gather import gathered_spans
from longctx.core.ask.gathering import Gatherer
from longctx.core.ask.place import Place, placed
from longctx.core.ask.refusing import PHRASE
from longctx.core.common.errors import UsageError
from longctx.core.contracts.policy import Spent
from longctx.core.decode import policies
from longctx.core.decode.policies import Decoding
from longctx.core.decode.quoting.forks import Forks
from longctx.core.decode.quoting.search import Search
from longctx.core.model.adapter import Decoder
from longctx.core.passages.names import name_start
from longctx.core.passages.quotable import Excerpt, Quotable, Span
from longctx.core.profile.profile import Profile
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.store.document import Document
from longctx.core.tokens.spelling import Spelling

PASSES = 64  # paths through the model, after which the best stretch so far is given
PLACES = 16  # further places that are listed


@dataclass(frozen=True)
class Quote(Place):
    """An answer that is a stretch of a passage, with the whole of a name that it begins in.

    Attributes:
        text: the stretch as it stands there, decoded.
        also: other places in the passages with the same text, at most 16.
    """

    text: str
    also: tuple[Place, ...]


@dataclass(frozen=True)
class Quoting:
    """How the answer was chosen.

    Attributes:
        probability: that the model answers with the best stretch found, spelled in its likeliest
            way; None: none is likelier than the phrase.
        not_in_text: that it answers with the phrase that says so.
        exact: no stretch of the passages is likelier; else the search ended at its limit.
        passes: paths that were read after the prompt.
    """

    probability: float | None
    not_in_text: float
    exact: bool
    passes: int


@dataclass(frozen=True)
class Quoted:
    """The result.

    Attributes:
        text: the stretch on one line, or the phrase.
        tokens: how many the model spells it with.
        quote: where it stands; None: nowhere.
        quoting: how it was chosen.
        spent: what the paths attended to.
        span: the quotation in its passage; None: there is none.
    """

    text: str
    tokens: int
    quote: Quote | None
    quoting: Quoting
    spent: Spent
    span: Span | None = None


def wants_quotes(profile: Profile) -> bool:
    """Whether a profile says that answers are quotations."""
    return profile.reading.quote


def quotes_by_default(
    profile: Profile, way: Answering, decoding: Decoding, ends: set[int], tokenizer: Any
) -> bool:
    """Whether a profile says that answers are quotations, where they can be."""
    if not wants_quotes(profile):
        return False
    try:
        require_quotable(way, decoding, ends, tokenizer)
    except UsageError:
        return False
    return True


def require_quotable(way: Answering, decoding: Decoding, ends: set[int], tokenizer: Any) -> None:
    """Refuses what cannot be asked for a quotation, before anything is read.

    Args:
        way: how the documents are asked.
        decoding: how answers are decoded.
        ends: token ids that end an answer.
        tokenizer: of the model that answers.

    Raises:
        UsageError: nothing is gathered, or the decode policy keeps only a part of the prompt, or
            the model never ends an answer, or its tokens are of unknown form.
    """
    if not isinstance(way, Gatherer):
        raise UsageError(
            "cannot quote",
            f"with the method {way.name!r} the model attends to everything that was kept, and no "
            "passage is gathered to quote from",
            "Add --gather-by hybrid, or --no-quote.",
        )
    if decoding.name != policies.USUALLY:
        raise UsageError(
            f"cannot quote with --decode {decoding.name}",
            "many continuations of one prompt are compared, and its cache cannot go back",
            f"Use --decode {policies.USUALLY}, or --no-quote.",
        )
    if not ends:
        raise UsageError(
            "cannot quote with this model",
            "it has no token that ends an answer",
            "Use --no-quote.",
        )
    spelling_of(tokenizer)


def quoted(
    decoder: Decoder,
    tokenizer: Any,
    begun: Begun,
    documents: Sequence[Document],
    ends: Sequence[int],
    limit: int,
) -> Quoted:
    """The likeliest stretch of what was gathered, or the phrase.

    Args:
        decoder, tokenizer: of the model that answers.
        begun: its prompt, read.
        documents: those asked.
        ends: token ids that end an answer.
        limit: most tokens of the answer; a phrase of more does not compete.

    Raises:
        UsageError: it is not known which bytes the tokens stand for.
    """
    assert begun.cache is not None, "passages were gathered"
    text = Quotable(excerpts(documents, begun.found()))
    forks = Forks(decoder, begun.cache, begun.hidden)
    phrase, floor = phrase_of(tokenizer, forks, ends, limit)
    search = Search(text, spelling_of(tokenizer), forks.after, ends, limit, floor)
    best = search.run(PASSES)
    quoting = Quoting(
        probability=None if best is None else _probability(best.score),
        not_in_text=_probability(floor),
        exact=search.exact,
        passes=search.passes,
    )
    if best is None:
        return Quoted(PHRASE, len(phrase), None, quoting, forks.spent())
    spans = [with_name(text.span(*span)) for span in best.spans[: PLACES + 1]]
    line, *others = [" ".join(span.text.split()) for span in spans]
    also = (other for other, its in zip(spans[1:], others, strict=True) if its == line)
    quote = Quote(
        **_placed(spans[0]),
        text=spans[0].text,
        also=tuple(Place(**_placed(other)) for other in also),
    )
    return Quoted(line, len(best.path), quote, quoting, forks.spent(), spans[0])


def with_name(span: Span) -> Span:
    """A quotation that begins inside a name, from the first word of the name in its passage."""
    snippet = span.excerpt.snippet
    start, end = snippet.containing(span.start), snippet.since(span.end)
    first = name_start(snippet.text, start, span.excerpt.low)
    return replace(span, start=snippet.byte(first), text=snippet.text[first:end])


def excerpts(documents: Sequence[Document], chosen: Chosen) -> list[Excerpt]:
    """What was gathered as passages to quote from, the one with the best token first.

    Args:
        documents: open; tokens are numbered through all of them.
        chosen: the gathered tokens.

    Raises:
        StateMismatch: the text is damaged.
    """
    spans = gathered_spans(documents, chosen.tokens, chosen.scores.raw)
    return [Excerpt.of(*span) for span in spans]


def phrase_of(
    tokenizer: Any, forks: Forks, ends: Sequence[int], limit: int
) -> tuple[list[int], float]:
    """The phrase's tokens, with a space before it or without, and the better score of the two."""
    best: list[int] = []
    floor = -math.inf
    first = forks.after(())
    for text in (PHRASE, f" {PHRASE}"):
        path = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        if 0 < len(path) <= limit and float(first[path[0]]) > floor:
            floor, best = max((floor, best), (forks.score(path, ends), path))
    return best, floor


_spellings: WeakKeyDictionary[Any, Spelling] = WeakKeyDictionary()


def spelling_of(tokenizer: Any) -> Spelling:
    """The tokens of a tokenizer by their bytes; made once for each.

    Raises:
        UsageError: it is not known which bytes they stand for.
    """
    if tokenizer not in _spellings:
        _spellings[tokenizer] = Spelling(tokenizer)
    return _spellings[tokenizer]


def _probability(score: float) -> float:
    return float(f"{math.exp(score):.4g}")


def _placed(span: Span) -> dict[str, Any]:
    return placed(span.excerpt.document, span.excerpt.source, span.start, span.end)
