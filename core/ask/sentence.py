"""The sentence that answers: of what was put before the model, the one to show first.

What counts, in this order: it contains the model's answer; it is in the best-ranked passage; how
rare the words are that it shares with the question; how many pairs of them stand in order. For a
quotation, it is the sentence that the quotation stands in.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longctx.core.ask.gather import gathered_spans
from longctx.core.ask.place import Place, placed
from longctx.core.passages.matching import ExactString, Query, Span, shown
from longctx.core.passages.near_lines import around
from longctx.core.passages.quotable import Span as Quotation
from longctx.core.passages.sentences import sentences
from longctx.core.passages.snippet import Snippet
from longctx.core.passages.wrapping import unquoted, unwrapped
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.store.document import Document

MOST = 256  # passages looked at, best first: what a method kept can be thousands of single tokens


@dataclass(frozen=True)
class Sentence(Place):
    """The sentence that answers.

    Attributes:
        text: its bytes, decoded.
        marks: [start, end) in characters of `text`: the answer, or else the question's words.
        line_text: `text` with spaces for the ends of wrapped lines, of the same length.
        shown: the part to show, in characters: all, except of a very long sentence. This and
            `line_text` are for people, not part of the JSON schema.
    """

    text: str
    marks: tuple[Span, ...]
    line_text: str
    shown: Span

    def as_dict(self) -> dict[str, Any]:
        """The fields of the JSON schema."""
        values = asdict(self)
        del values["line_text"], values["shown"]
        return values


@dataclass(frozen=True)
class _Found:
    """A sentence in a snippet of a source: [start, end) of its text."""

    document: Document
    source: int
    snippet: Snippet
    text: str  # the snippet's, unwrapped
    start: int
    end: int

    @property
    def own(self) -> str:
        return self.text[self.start : self.end]


def answering_sentence(
    documents: Sequence[Document], chosen: Chosen, query: Query, answer: str
) -> Sentence | None:
    """The sentence to show for an answer.

    Args:
        documents: open; tokens are numbered through all of them.
        chosen: what the answer is based on.
        query: the question, with the weights of its words.
        answer: the model's, or empty.

    Returns:
        None where no sentence contains the answer or a word of the question.

    Raises:
        StateMismatch: a document is damaged.
    """
    told = answer.strip().removesuffix(".").strip()
    wanted = ExactString(told) if told else None
    best, most = None, (False, False, 0.0, 0)
    spans = gathered_spans(documents, chosen.tokens, chosen.scores.raw)
    for rank, span in enumerate(spans[:MOST]):
        for found in _sentences(*span):
            has_it = wanted is not None and wanted.pattern.search(found.own) is not None
            weight, pairs = query.weight(found.own)
            key = has_it, rank == 0, weight, pairs
            if (has_it or weight) and key > most:
                best, most = found, key
    if best is None:
        return None
    marks = [match.span() for match in wanted.pattern.finditer(best.own)] if wanted else []
    if marks:
        return _made(best, marks)
    words = query.marked(best.own)
    weights = [1.0 + query.weight(best.own[low:high])[0] for low, high in words]
    return _made(best, words, weights)


def quoted_sentence(quotation: Quotation) -> Sentence:
    """The sentence that a quotation stands in, or those, with the quotation marked.

    Raises:
        StateMismatch: the document is damaged.
    """
    excerpt = quotation.excerpt
    span = excerpt.document, excerpt.source, quotation.start, quotation.end
    held = _sentences(*span)
    found = _Found(*span[:2], held[0].snippet, held[0].text, held[0].start, held[-1].end)
    first = found.snippet.containing(quotation.start) - found.start
    last = found.snippet.since(quotation.end) - found.start
    return _made(found, [(max(0, first), last)])


def _sentences(document: Document, source: int, start: int, end: int) -> list[_Found]:
    """The sentences that bytes [start, end) of a source touch, whole where they are not too long.

    None is without a letter or another sign; of white space alone there are none.
    """
    snippet = around(document, source, start, end)
    text = unwrapped(snippet.text)
    low, high = snippet.containing(start), snippet.since(end)
    read_to = snippet.start + len(snippet.raw)
    before, behind = snippet.start > 0, read_to < document.manifest.sources[source].size
    spans = sentences(text)
    found = []
    for number, (first, last) in enumerate(spans):
        if number == 0 and before:  # it may have begun before what was read
            first = max(first, low)
        if number == len(spans) - 1 and behind:
            last = min(last, high)
        first += unquoted(text[first:last])
        if first < min(last, high) and last > low:
            found.append(_Found(document, source, snippet, text, first, last))
    return found


def _made(found: _Found, marks: Sequence[Span], weights: Sequence[float] = ()) -> Sentence:
    snippet = found.snippet
    place = found.document, found.source, snippet.byte(found.start), snippet.byte(found.end)
    return Sentence(
        **placed(*place),
        text=snippet.text[found.start : found.end],
        marks=tuple(marks),
        line_text=found.own,
        shown=shown(found.own, marks, weights),
    )
