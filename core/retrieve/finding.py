"""Hits: from scored passages to those that are listed, each with its matching line.

The best passages are taken; before them, those that define the name that the query asks for, and
those with an exact string of it. It works on the scores of any gather source
(`core/retrieve/ranked.py`), and loads no model libraries.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

import numpy as np

from longctx.core.passages.answer_line import answering_piece
from longctx.core.passages.definitions import ASSIGNED, defines, is_identifier, name_asked
from longctx.core.passages.expected import Expected
from longctx.core.passages.matching import (
    LONG,
    ExactString,
    LinePiece,
    Query,
    Span,
    best_piece,
    pieces,
    shown,
)
from longctx.core.passages.near_lines import around, lines_of, whole
from longctx.core.passages.sentences import begins_sentence, sentences, stripped
from longctx.core.passages.snippet import Snippet
from longctx.core.passages.wrapping import unwrapped
from longctx.core.retrieve import exact
from longctx.core.retrieve.exact import Occurrence
from longctx.core.retrieve.hit import Hit, Match
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.passage_table import Passages
from longctx.core.retrieve.ranked import Ranked
from longctx.core.store.document import Document
from longctx.core.tokens.normal_form import folded
from longctx.core.tokens.terms import string_words

CHANCE = 0.75  # of the greatest deviation that so many passages would show by chance
_FEW = 8  # passages: with fewer, chance cannot be judged
_MOST_NAMED, _MOST_PLAIN = 2048, 256  # occurrences of an identifier, or of a plain word, looked at
_LINE = 512  # bytes of text on each side of a name that is defined


@dataclass(frozen=True)
class _Choice:
    """A chosen passage, and why.

    Attributes:
        passage: its number.
        last: the passage in which the exact string ends; else the same.
        anchor: the byte of the source where the exact string, or the name that is defined, begins;
            None: there is none.
        exact: it has an exact string of the query.
    """

    passage: int
    last: int
    anchor: int | None = None
    exact: bool = False


def find_hits(
    documents: Sequence[Document],
    ranked: Ranked,
    query: Query,
    most: int,
    index: PassageIndex | None = None,
    one_of_each: bool = False,
) -> list[Hit]:
    """The best passages; those that define a name, then those with an exact string, come first.

    Where the query has text in quotes that occurs, only passages with an exact string are returned.

    Args:
        documents: open, in the order of the passages.
        ranked: the passages and their scores; `-inf` where one is not a candidate.
        query: what to search for.
        most: the most hits to return.
        index: the documents' words; None: exact strings are searched for in all text.
        one_of_each: at most one hit from each source.

    Raises:
        StateMismatch: a document is damaged.
        UsageError: the query's regular expression takes too long.
    """
    finder = _Finder(documents, ranked, query)
    if query.lines is not None and not query.weights and ranked.meaning is None:
        return finder.in_order(most, one_of_each)
    chosen = _Chosen(ranked, most, one_of_each)
    for choice in chain(finder.defining(index), finder.exact(index)):
        if chosen.full:
            break
        chosen.add(choice)
    only_exact = query.quoted and chosen.all  # what is quoted is required, unless nothing has it
    for choice in () if only_exact else finder.best():
        if chosen.full:
            break
        chosen.add(choice)
    return finder.hits(chosen.all)


def above_chance(meaning: np.ndarray) -> np.ndarray:
    """Which passages stand out by meaning: (P,) bool.

    A passage stands out if its score exceeds the median by `CHANCE` times sqrt(2 ln P) deviations,
    the expected maximum of P draws from a normal distribution. The deviation is 1.4826 times the
    median one, which the few passages that matter do not change. With fewer than 8 passages, all
    that have any score stand out.

    Args:
        meaning: (P,) float64, standardised MaxSim, at least 0.
    """
    if len(meaning) < _FEW:
        return meaning > 0
    middle = float(np.median(meaning))
    deviation = 1.4826 * float(np.median(np.abs(meaning - middle)))
    return meaning > middle + CHANCE * deviation * math.sqrt(2 * math.log(len(meaning)))


def listed(ranked: Ranked) -> np.ndarray:
    """Which passages may be hits: (P,) bool. They share a word with the query, or stand out.

    With fewer than 8 passages, only those with a word, if any has one.
    """
    kept = np.isfinite(ranked.scores)
    if ranked.words is None and ranked.meaning is None:
        return kept
    with_words = np.zeros(len(kept), bool) if ranked.words is None else ranked.words > 0
    few = len(kept) < _FEW and with_words.any()  # too few to judge what stands out
    if ranked.meaning is None or few:
        return kept & with_words
    return kept & (with_words | above_chance(ranked.meaning))


class _Chosen:
    """The passages of hits, chosen one after another.

    Attributes:
        all: them, in the order in which they were chosen.
    """

    def __init__(self, ranked: Ranked, most: int, one_of_each: bool):
        self._passages, self._most, self._one_of_each = ranked.passages, most, one_of_each
        self._used: set[int] = set()
        self._sources: set[tuple[int, int]] = set()
        self.all: list[_Choice] = []

    @property
    def full(self) -> bool:
        """Whether enough were chosen."""
        return len(self.all) >= self._most

    def add(self, choice: _Choice) -> None:
        """Takes a passage that no earlier hit shows."""
        own = range(choice.passage, choice.last + 1)
        source = _source(self._passages, choice.passage)
        if not self._used.isdisjoint(own) or (self._one_of_each and source in self._sources):
            return
        self._sources.add(source)
        self._used.update(own)
        self.all.append(choice)


def _source(passages: Passages, number: int) -> tuple[int, int]:
    """The document and source of a passage."""
    return int(passages.documents[number]), int(passages.sources[number])


class _Finder:
    """Orders the passages that may be hits, and makes hits of the chosen ones."""

    def __init__(self, documents: Sequence[Document], ranked: Ranked, query: Query):
        self._documents, self._ranked, self._query = documents, ranked, query
        self._passages = ranked.passages

    def exact(self, index: PassageIndex | None) -> Iterator[_Choice]:
        """The passages that contain a string of the query verbatim."""
        for string in self._query.strings:
            for found in exact.occurrences(self._documents, self._ranked, index, string):
                last = self._passages.containing(found.document, found.source, found.end - 1)
                choice = _Choice(found.passage, last, found.start, exact=True)
                if self._has_line(choice):
                    yield choice

    def defining(self, index: PassageIndex | None) -> Iterator[_Choice]:
        """The passages that define the name that the query asks for, the surest first.

        A word without the look of an identifier has to be assigned or defined by a keyword.
        """
        plain = self._query.lines is None and not self._query.quoted
        name = name_asked(self._query.text) if plain else ""
        if not name or index is None or not string_words(folded(name), index.languages):
            return
        least, most = (1, _MOST_NAMED) if is_identifier(name) else (ASSIGNED, _MOST_PLAIN)
        whole_query = name == self._query.text.strip()
        graded: list[tuple[int, bool, _Choice]] = []
        occurrences = exact.occurrences(self._documents, self._ranked, index, ExactString(name))
        for found in islice(occurrences, most):
            spelt, line, following = self._line_at(found)
            surely = defines(spelt, line, following)
            if surely >= least:
                last = self._passages.containing(found.document, found.source, found.end - 1)
                choice = _Choice(found.passage, last, found.start, exact=whole_query)
                graded.append((surely, spelt == name, choice))
        yield from (one[2] for one in sorted(graded, key=lambda one: one[:2], reverse=True))

    def _line_at(self, found: Occurrence) -> tuple[str, str, str]:
        """A name as it is spelt, its line, and the next line; no line if it begins far before."""
        document = self._documents[found.document]
        snippet = around(document, found.source, found.start, found.end, _LINE)
        low, high = snippet.since(found.start), snippet.since(found.end)
        text = snippet.text
        begin = text.rfind("\n", 0, low) + 1
        if begin == 0 and not whole(snippet):
            return text[low:high], "", ""
        line, _, following = text[begin:].partition("\n")
        return text[low:high], line.rstrip("\r"), following.partition("\n")[0]

    def best(self) -> Iterator[_Choice]:
        """The listed passages, best first; ties go to the earlier."""
        kept = np.flatnonzero(listed(self._ranked))
        for number in kept[np.argsort(-self._ranked.scores[kept], kind="stable")].tolist():
            choice = _Choice(number, number)
            if self._has_line(choice):
                yield choice

    def in_order(self, most: int, one_of_each: bool) -> list[Hit]:
        """The lines that the regular expression matches, in the order of the documents."""
        hits: list[Hit] = []
        for number, document in enumerate(self._documents):
            for source in range(len(document.manifest.sources)):
                found = self._matching_lines(number, source)
                hits += islice(found, 1 if one_of_each else most - len(hits))
                if len(hits) == most:
                    return hits
        return hits

    def hits(self, chosen: Iterable[_Choice]) -> list[Hit]:
        """Hits of the chosen passages; each shows a line that no earlier hit shows."""
        hits: list[Hit] = []
        lines: set[tuple[int, int, int]] = set()
        for choice in chosen:
            hit = self._hit(choice, lines)
            if hit is not None:
                lines.add((hit.document, hit.source, hit.match.start))
                hits.append(hit)
        return hits

    @cached_property
    def _is_question(self) -> bool:
        """Whether the line that answers is shown, rather than the one with most words."""
        query = self._query
        return query.lines is None and not query.quoted and Expected(query.text).is_question

    def _has_line(self, choice: _Choice) -> bool:
        """Whether a line of a passage may be a hit."""
        if self._query.lines is None:
            return True
        snippet, low, high = self._snippet(choice)
        return bool(self._allowed(snippet.text, pieces(snippet.text, low, high, whole(snippet))))

    def _snippet(self, choice: _Choice) -> tuple[Snippet, int, int]:
        """A passage with its surroundings, and its first character and the end of it in there."""
        number, source = _source(self._passages, choice.passage)
        start, end = exact.bytes_of(self._documents, self._passages, choice.passage, choice.last)
        snippet = around(self._documents[number], source, start, end)
        return snippet, snippet.containing(start), snippet.since(end)

    def _allowed(self, text: str, among: list[LinePiece]) -> list[LinePiece]:
        """The pieces of lines that the regular expression matches."""
        lines = self._query.lines
        if lines is None:
            return among
        kept: list[LinePiece] = []
        for piece in among:
            start, end = piece.line
            spans = lines.spans(text[start:end]) if lines.matches(text[start:end]) else None
            touched = spans is not None and any(
                start + low < piece.end and start + high > piece.start for low, high in spans
            )
            if touched or spans == []:
                kept.append(piece)
        return kept

    def _hit(self, choice: _Choice, lines: set[tuple[int, int, int]]) -> Hit | None:
        """A passage and its line; None where earlier hits show all its lines."""
        number, source = _source(self._passages, choice.passage)
        snippet, low, high = self._snippet(choice)
        text = snippet.text
        low, high = stripped(text, low, high)
        if self._is_question:
            text = unwrapped(text)
        among = self._allowed(text, pieces(text, low, high, whole(snippet)))
        among = [p for p in among if (number, source, snippet.byte(p.start)) not in lines]
        piece = self._piece(choice, snippet, among)
        if piece is None:
            return None
        passage = snippet.byte(low), snippet.byte(high)
        return self._made(number, source, snippet, passage, piece, choice)

    def _piece(self, choice: _Choice, snippet: Snippet, among: list[LinePiece]) -> LinePiece | None:
        """The line of a passage that is shown."""
        if choice.anchor is not None:
            place = snippet.containing(choice.anchor)
            for piece in among:
                if piece.start <= place < piece.end:
                    return piece
        if choice.anchor is not None and self._query.quoted and self._query.lines is None:
            # An earlier hit shows the string's line; any other line has to have a string too.
            among = [p for p in among if self._query.occurs(snippet.text[p.start : p.end])]
        if self._is_question:
            best = answering_piece(self._query, unwrapped(snippet.text), among)
        else:
            best = best_piece(self._query, snippet.text, among)
        if best is not None or not among:
            return best
        telling = [p for p in among if _letters(snippet.text[p.start : p.end])] or among
        return next((p for p in telling if begins_sentence(snippet.text, p.start)), telling[0])

    def _matching_lines(self, number: int, source: int) -> Iterator[Hit]:
        """The lines of a source that the regular expression matches, in order."""
        document, wanted = self._documents[number], self._query.lines
        for snippet, line in lines_of(document, source):
            if wanted and not wanted.matches(snippet.text[slice(*line)]):
                continue
            low, high = stripped(snippet.text, *line)
            if low == high:
                continue
            among = [LinePiece(low, high, line)]
            if high - low > LONG:
                inner = sentences(snippet.text[low:high])
                among = [LinePiece(low + s, low + e, line) for s, e in inner]
            piece = (self._allowed(snippet.text, among) or among)[0]
            passage = snippet.byte(low), snippet.byte(high)
            yield self._made(number, source, snippet, passage, piece, None)

    def _made(
        self,
        number: int,
        source: int,
        snippet: Snippet,
        passage: Span,
        piece: LinePiece,
        choice: _Choice | None,
    ) -> Hit:
        document, (start, end) = self._documents[number], passage
        own = slice(choice.passage, choice.last + 1) if choice else slice(0)
        score = float(self._ranked.scores[choice.passage]) if choice else 0.0
        text = snippet.text[snippet.since(start) : snippet.since(end)]
        return Hit(
            document=number,
            source=source,
            tokens=int(self._passages.lengths[own].sum()),
            line=document.line(source, start),
            place=document.place(source, start),
            start=start,
            end=end,
            score=score if math.isfinite(score) else 0.0,
            exact=choice is not None and choice.exact,
            text=text,
            match=self._match(document, source, snippet, piece),
        )

    def _match(self, document: Document, source: int, snippet: Snippet, piece: LinePiece) -> Match:
        text, start = snippet.text[piece.start : piece.end], snippet.byte(piece.start)
        line_text = text
        if self._is_question:
            line_text = unwrapped(snippet.text)[piece.start : piece.end]
        marked = self._query.marked(line_text)
        weights = [1.0 + self._query.weight(text[low:high])[0] for low, high in marked]
        return Match(
            line=document.line(source, start),
            place=document.place(source, start),
            start=start,
            end=snippet.byte(piece.end),
            text=text,
            line_text=line_text,
            words=tuple(
                (snippet.byte(piece.start + low), snippet.byte(piece.start + high))
                for low, high in marked
            ),
            marked=tuple(marked),
            shown=shown(line_text, marked, weights),
        )


def _letters(text: str) -> bool:
    """Whether a line has content: it is not a rule of dashes or a page number."""
    return sum(character.isalpha() for character in text) > 3
