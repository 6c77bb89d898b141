"""The sentence that answers: of what was put before the model, the one to show first.

What counts, in this order: it contains the model's answer; the share of the answer's words in it,
if that is a half or more; it is in the best-ranked passage; how rare the words are that it shares
with the question; how many pairs of them stand in order. An answer that crosses the end of a
sentence, or a quotation, has all sentences that it stands in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from longctx.core.ask.gather import gathered_spans
from longctx.core.ask.place import Place, placed
from longctx.core.ask.refusing import is_refusal
from longctx.core.passages.matching import ExactString, Query, Span, shown
from longctx.core.passages.near_lines import around
from longctx.core.passages.quotable import Span as Quotation
from longctx.core.passages.sentences import sentences
from longctx.core.passages.snippet import Snippet
from longctx.core.passages.wrapping import unquoted, unwrapped
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.store.document import Document
from longctx.core.tokens.terms import words

ENOUGH = 0.5  # of the words of an answer, where no sentence has it as it reads
LONGEST = 1000  # characters shown
_AROUND = " \t\n\"'\u201c\u201d\u2018\u2019\u00ab\u00bb`*"  # what models put around an answer
MOST = 256  # passages looked at, best first: what a method kept can be thousands of single tokens


@dataclass(frozen=True)
class Sentence(Place):
    """The sentence that answers.

    Attributes:
        text: its bytes, decoded.
        marks: [start, end) in characters of `text`: the answer, or else its words, or else the
            question's words.
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


@dataclass(frozen=True)
class _Wanted:
    """The model's answer, to look for in sentences."""

    exact: ExactString | None
    terms: frozenset[str]

    @classmethod
    def of(cls, answer: str) -> "_Wanted":
        text = "" if is_refusal(answer) else answer.strip(_AROUND)
        text = text.removesuffix(".").strip(_AROUND)
        return cls(
            ExactString(text) if text else None, frozenset(term.text for term in words(text))
        )

    def is_in(self, text: str) -> bool:
        """Whether a text has the answer as it reads."""
        return self.exact is not None and bool(self.exact.spans(text))

    def share(self, text: str) -> float:
        """The share of the answer's words in a text; 0 below ENOUGH."""
        if not self.terms:
            return 0.0
        share = len(self.terms & {term.text for term in words(text)}) / len(self.terms)
        return share if share >= ENOUGH else 0.0

    def marks(self, text: str) -> list[Span]:
        """Where the answer is in a text, or else its words, if enough of them are."""
        if self.exact is not None and (spans := self.exact.spans(text)):
            return spans
        if not self.share(text):
            return []
        return [(start, end) for start, end, term in words(text) if term in self.terms]

    def crossing(self, held: "Sequence[_Found]") -> "Iterator[_Found]":
        """The runs of neighbouring sentences that have the answer together, and none of them."""
        if self.exact is None or len(held) < 2:
            return
        low = held[0].start
        for first, last in self.exact.spans(held[0].text[low : held[-1].end]):
            run = [one for one in held if one.end > low + first and one.start < low + last]
            if len(run) > 1:
                yield replace(run[0], end=run[-1].end)


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
    wanted = _Wanted.of(answer)
    best, most = None, (False, 0.0, False, 0.0, 0)
    spans = gathered_spans(documents, chosen.tokens, chosen.scores.raw)
    for rank, span in enumerate(spans[:MOST]):
        held = _sentences(*span)
        for found in [*held, *wanted.crossing(held)]:
            weight, pairs = query.weight(found.own)
            key = wanted.is_in(found.own), wanted.share(found.own), rank == 0, weight, pairs
            if (key[0] or key[1] or weight) and key > most:
                best, most = found, key
    if best is None:
        return None
    if marks := wanted.marks(best.own):
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
        shown=shown(found.own, marks, weights, LONGEST),
    )
