"""Hits: from scored windows to readable passages, each with its matching line.

The best windows are taken, without overlaps; neighbours among them become one passage, which grows
until it begins and ends with a sentence or a line. Exact strings of the query come first. It works
on the scores of any gather source (`core/retrieve/ranked.py`), and loads no model libraries.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from longctx.core.passages.matching import LONG, LinePiece, Query, Span, best_piece, pieces, shown
from longctx.core.passages.near_lines import around, lines_of, whole
from longctx.core.passages.sentences import begins_sentence, grown, sentences, stripped
from longctx.core.passages.snippet import Snippet
from longctx.core.retrieve import exact
from longctx.core.retrieve.hit import Hit, Match
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.unit_table import Units
from longctx.core.store.document import Document

CHANCE = 0.75  # of the greatest deviation that so many windows would show by chance
_FEW = 8  # windows: with fewer, chance cannot be judged
_MOST_UNITS = 4  # of a passage made of neighbours


@dataclass(frozen=True)
class _Run:
    """Chosen units [first, last] of one source, and why.

    Attributes:
        window: the best of their windows; None: they were chosen for a string alone.
        anchor: the byte of the source where the exact string begins; None: there is none.
    """

    first: int
    last: int
    window: int
    score: float
    anchor: int | None = None


def find_hits(
    documents: Sequence[Document],
    ranked: Ranked,
    query: Query,
    most: int,
    index: PassageIndex | None = None,
    one_of_each: bool = False,
) -> list[Hit]:
    """The best passages; those with an exact string of the query come first.

    Where the query has text in quotes that occurs, only passages with an exact string are returned.

    Args:
        documents: open, in the order of the windows.
        ranked: the windows and their scores; `-inf` where one is not a candidate.
        query: what to search for.
        most: the most hits to return.
        index: the documents' words; None: exact strings are searched for in all text.
        one_of_each: at most one hit from each source.

    Raises:
        StateMismatch: a document is damaged.
        UsageError: the query's regular expression takes too long.
    """
    ranked = replace(ranked, units=placed(documents, ranked.units))
    finder = _Finder(documents, ranked, query)
    if query.lines is not None and not query.weights and ranked.meaning is None:
        return finder.in_order(most, one_of_each)
    runs = _Runs(ranked.units, most, one_of_each)
    for run in finder.exact(index):
        if runs.full:
            break
        runs.add(run)
    only_exact = query.quoted and runs.chosen  # what is quoted is required, unless nothing has it
    for run in () if only_exact else finder.windows():
        if runs.full:
            break
        runs.add(run)
    return finder.hits(runs.chosen)


def above_chance(meaning: np.ndarray) -> np.ndarray:
    """Which windows stand out by meaning: (W,) bool.

    A window stands out if its score exceeds the median by `CHANCE` times sqrt(2 ln W) deviations,
    the expected maximum of W draws from a normal distribution. The deviation is 1.4826 times the
    median one, which the few windows that matter do not change. With fewer than 8 windows, all
    that have any score stand out.

    Args:
        meaning: (W,) float64, standardised MaxSim, at least 0.
    """
    if len(meaning) < _FEW:
        return meaning > 0
    middle = float(np.median(meaning))
    deviation = 1.4826 * float(np.median(np.abs(meaning - middle)))
    return meaning > middle + CHANCE * deviation * math.sqrt(2 * math.log(len(meaning)))


def listed(ranked: Ranked) -> np.ndarray:
    """Which windows may be hits: (W,) bool. They share a word with the query, or stand out.

    With fewer than 8 windows, only those with a word, if any has one.
    """
    kept = np.isfinite(ranked.scores)
    if ranked.words is None and ranked.meaning is None:
        return kept
    with_words = np.zeros(len(kept), bool) if ranked.words is None else ranked.words > 0
    few = len(kept) < _FEW and with_words.any()  # too few to judge what stands out
    if ranked.meaning is None or few:
        return kept & with_words
    return kept & (with_words | above_chance(ranked.meaning))


def placed(documents: Sequence[Document], units: Units) -> Units:
    """Units of documents with their first bytes, read unless already known.

    Raises:
        StateMismatch: the tokens are damaged.
    """
    if len(units.starts) == len(units):
        return units
    parts = [np.empty(0, np.int64)]
    for number, document in enumerate(documents):
        low, high = units.first_units[number : number + 2].tolist()
        if low < high:
            rows = units.tokens[low:high] - units.first_tokens[number]
            parts.append(document.array_take("tokens", rows, "starts"))
    return replace(units, starts=np.concatenate(parts))


class _Runs:
    """The units of hits, chosen one window after another."""

    def __init__(self, units: Units, most: int, one_of_each: bool):
        self._units, self._most, self._one_of_each = units, most, one_of_each
        self._used = np.full(len(units), -1, np.int32)  # by which run
        self._sources: set[tuple[int, int]] = set()
        self.chosen: list[_Run] = []

    @property
    def full(self) -> bool:
        """Whether enough were chosen."""
        return len(self.chosen) >= self._most

    def add(self, run: _Run) -> None:
        """Takes a window, unless it overlaps a better one."""
        if (self._used[run.first : run.last + 1] >= 0).any():
            return
        source = int(self._units.documents[run.first]), int(self._units.sources[run.first])
        if self._one_of_each and source in self._sources:
            return
        self._sources.add(source)
        number = self._neighbour(run, source)
        if number is None:
            number = len(self.chosen)
            self.chosen.append(run)
        else:
            own = self.chosen[number]
            first, last = min(own.first, run.first), max(own.last, run.last)
            self.chosen[number] = replace(own, first=first, last=last)
        self._used[run.first : run.last + 1] = number

    def _neighbour(self, run: _Run, source: tuple[int, int]) -> int | None:
        """An adjacent chosen run that this one can join without becoming too long."""
        for unit in (run.first - 1, run.last + 1):
            if not 0 <= unit < len(self._units) or self._used[unit] < 0:
                continue
            if (int(self._units.documents[unit]), int(self._units.sources[unit])) != source:
                continue
            own = self.chosen[self._used[unit]]
            # Each exact string is shown by itself.
            apart = (
                run.anchor is not None
                or own.last - own.first + run.last - run.first + 2 > _MOST_UNITS
            )
            if not apart:
                return int(self._used[unit])
        return None


class _Finder:
    """Orders the windows that may be hits, and makes hits of the chosen ones."""

    def __init__(self, documents: Sequence[Document], ranked: Ranked, query: Query):
        self._documents, self._ranked, self._query = documents, ranked, query
        self._units = ranked.units

    def exact(self, index: PassageIndex | None) -> Iterator[_Run]:
        """The windows that contain a string of the query verbatim."""
        for string in self._query.strings:
            for found in exact.occurrences(self._documents, self._ranked, index, string):
                window = self._window_of(found.unit)
                first, last = self._ranked.windows[window].tolist()
                beyond = exact.unit_at(self._units, found.document, found.source, found.end - 1)
                score = float(self._ranked.scores[window])
                run = _Run(first, max(last, beyond), window, score, found.start)
                if self._has_line(run):
                    yield run

    def windows(self) -> Iterator[_Run]:
        """The listed windows, best first; ties go to the earlier."""
        kept = np.flatnonzero(listed(self._ranked))
        for window in kept[np.argsort(-self._ranked.scores[kept], kind="stable")].tolist():
            first, last = self._ranked.windows[window].tolist()
            run = _Run(first, last, window, float(self._ranked.scores[window]))
            if self._has_line(run):
                yield run

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

    def hits(self, runs: Iterable[_Run]) -> list[Hit]:
        """Hits of the chosen runs; each shows a line that no earlier hit shows."""
        found: list[Hit] = []
        told: set[tuple[int, int, int]] = set()
        for run in runs:
            hit = self._hit(run, told)
            if hit is not None:
                told.add((hit.document, hit.source, hit.match.start))
                found.append(hit)
        return found

    def _window_of(self, unit: int) -> int:
        """The better window of a unit; of equal ones the earlier."""
        windows = [window for window in self._units.of_unit[unit].tolist() if window >= 0]
        return max(windows, key=lambda window: self._ranked.scores[window])

    def _source(self, unit: int) -> tuple[int, int]:
        return int(self._units.documents[unit]), int(self._units.sources[unit])

    def _has_line(self, run: _Run) -> bool:
        """Whether a line of a run may be a hit."""
        if self._query.lines is None:
            return True
        document, source = self._source(run.first)
        start, end = exact.bytes_of(self._documents, self._units, run.first, run.last)
        snippet = around(self._documents[document], source, start, end)
        low, high = snippet.containing(start), snippet.since(end)
        return bool(self._allowed(snippet.text, pieces(snippet.text, low, high, whole(snippet))))

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

    def _hit(self, run: _Run, told: set[tuple[int, int, int]]) -> Hit | None:
        """A passage and its line; None where earlier hits show all its lines."""
        number, source = self._source(run.first)
        document, before = self._documents[number], int(self._units.first_tokens[number])
        first = int(self._units.tokens[run.first]) - before
        last = int(self._units.tokens[run.last] + self._units.lengths[run.last]) - before
        first, last = grown(document, first, last)
        _, start, end = document.span(first, last)
        snippet = around(document, source, start, end)
        text = snippet.text
        low, high = stripped(text, snippet.containing(start), snippet.since(end))
        among = self._allowed(text, pieces(text, low, high, whole(snippet)))
        among = [p for p in among if (number, source, snippet.byte(p.start)) not in told]
        piece = self._piece(run, snippet, among)
        if piece is None:
            return None
        passage = snippet.byte(low), snippet.byte(high)
        return self._made(number, source, snippet, passage, piece, run, last - first)

    def _piece(self, run: _Run, snippet: Snippet, among: list[LinePiece]) -> LinePiece | None:
        """The line of a run that is shown."""
        if run.anchor is not None:
            place = snippet.containing(run.anchor)
            for piece in among:
                if piece.start <= place < piece.end:
                    return piece
        if run.anchor is not None and self._query.quoted and self._query.lines is None:
            # An earlier hit shows the string's line; any other line has to have a string too.
            among = [p for p in among if self._query.occurs(snippet.text[p.start : p.end])]
        best = best_piece(self._query, snippet.text, among)
        if best is not None or not among:
            return best
        place = snippet.since(int(self._units.starts[self._better_unit(run)]))
        telling = [p for p in among if _letters(snippet.text[p.start : p.end])] or among
        later = [piece for piece in telling if piece.start >= place] or telling[-1:]
        return next((p for p in later if begins_sentence(snippet.text, p.start)), later[0])

    def _better_unit(self, run: _Run) -> int:
        """The unit of a run's window shared with the better of its neighbouring windows."""
        first, last = self._ranked.windows[run.window].tolist()
        scores = self._ranked.scores if self._ranked.meaning is None else self._ranked.meaning
        earlier, later = self._units.of_unit[first, 0], self._units.of_unit[last, 1]
        before = scores[earlier] if earlier >= 0 and earlier != run.window else -np.inf
        behind = scores[later] if later >= 0 and later != run.window else -np.inf
        return last if behind > before else first

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
            unit = exact.unit_at(self._units, number, source, passage[0])
            run = _Run(unit, unit, 0, 0.0)
            yield self._made(number, source, snippet, passage, piece, run, 0)

    def _made(
        self,
        number: int,
        source: int,
        snippet: Snippet,
        passage: Span,
        piece: LinePiece,
        run: _Run,
        tokens: int,
    ) -> Hit:
        document, (start, end) = self._documents[number], passage
        text = snippet.text[snippet.since(start) : snippet.since(end)]
        return Hit(
            document=number,
            source=source,
            tokens=tokens,
            line=document.line(source, start),
            place=document.place(source, start),
            start=start,
            end=end,
            score=run.score if math.isfinite(run.score) else 0.0,
            exact=run.anchor is not None,
            text=text,
            match=self._match(document, source, snippet, piece),
        )

    def _match(self, document: Document, source: int, snippet: Snippet, piece: LinePiece) -> Match:
        text, start = snippet.text[piece.start : piece.end], snippet.byte(piece.start)
        marked = self._query.marked(text)
        weights = [1.0 + self._query.weight(text[low:high])[0] for low, high in marked]
        return Match(
            line=document.line(source, start),
            place=document.place(source, start),
            start=start,
            end=snippet.byte(piece.end),
            text=text,
            words=tuple(
                (snippet.byte(piece.start + low), snippet.byte(piece.start + high))
                for low, high in marked
            ),
            marked=tuple(marked),
            shown=shown(text, marked, weights),
        )


def _letters(text: str) -> bool:
    """Whether a line has content: it is not a rule of dashes or a page number."""
    return sum(character.isalpha() for character in text) > 3
