"""Matches a query with a text: weighted words, exact strings, and the line to show.

Of a passage, the line whose words of the query weigh most is shown. A long line is taken for prose
and split into sentences. Knows no scores and no documents.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from longctx.core.passages.line_filter import LineFilter
from longctx.core.passages.sentences import sentences, stripped, word_begin, word_end
from longctx.core.tokens.normal_form import folded, folded_places, kinds
from longctx.core.tokens.terms import terms, words

LONG = 300  # characters shown of a line; a longer line is taken for prose
_LEAD = 60  # characters of a cut line before its first word of the query
_LONGEST_STRING = 1000  # characters of a string that is searched for verbatim
_MOST_STRINGS = 8  # of one query
_QUOTED = re.compile('"([^"\n]+)"|\u201c([^\u201d\n]+)\u201d')

_WORD = "Aa0_"  # kinds of characters (`normal_form.kinds`) of which longer words are made

Span = tuple[int, int]  # [start, end) in characters or bytes


@dataclass(frozen=True)
class Query:
    """What to search for.

    Attributes:
        text: the user's words.
        weights: the rarity of each term; terms not listed do not count.
        lines: which lines may be hits; None: all.
        languages: of the documents that are searched.
    """

    text: str
    weights: Mapping[str, float] = field(default_factory=dict)
    lines: LineFilter | None = None
    languages: tuple[str, ...] = ("",)

    @cached_property
    def strings(self) -> tuple["ExactString", ...]:
        """What is searched for verbatim: the whole query, and its quoted parts."""
        kept = {folded(" ".join(text.split())): text for text in (self.text, *self.quoted)}
        short = [text for text in kept.values() if _can_be_searched(text)]
        return tuple(map(ExactString, short[:_MOST_STRINGS]))

    @cached_property
    def quoted(self) -> tuple[str, ...]:
        """Its parts in quotes that can be searched for verbatim."""
        found = (match[1] or match[2] for match in _QUOTED.finditer(self.text))
        return tuple(text for text in found if _can_be_searched(text))

    @cached_property
    def neighbours(self) -> frozenset[tuple[str, str]]:
        """Pairs of consecutive words in the query."""
        found = ([term.text for term in words(self.text, each)] for each in self.languages)
        return frozenset(pair for own in found for pair in pairwise(own))

    def terms(self, text: str) -> dict[Span, str]:
        """The words, and parts of identifiers, that a text shares with the query, by their places.

        A document's language is one of several, so the term of any of them counts.
        """
        found: dict[Span, str] = {}
        for language in self.languages:
            for start, end, term in terms(text, language):
                if term in self.weights:
                    found.setdefault((start, end), term)
        return found

    def weight(self, text: str) -> tuple[float, int]:
        """How much of the query a text has: the terms' weights, and how many pairs in order."""
        weights = sum(self.weights[term] for term in {*self.terms(text).values()})
        counts = []
        for language in self.languages if weights else ():
            found = [term.text for term in words(text, language)]
            counts.append(sum(pair in self.neighbours for pair in pairwise(found)))
        return weights, max(counts, default=0)

    def occurs(self, text: str) -> bool:
        """Whether a text has one of the exact strings."""
        return any(string.spans(text) for string in self.strings)

    def marked(self, text: str) -> list[Span]:
        """The parts of a text that match: words, exact strings, and the regular expression."""
        spans = [*self.terms(text)]
        for string in self.strings:
            spans += string.spans(text)
        if self.lines is not None:
            spans += self.lines.spans(text)
        return _joined(spans)


@dataclass(frozen=True)
class ExactString:
    """A string to search for verbatim, but in any case and form of its letters and any white space.

    Which letters are the same is that of `core/tokens/normal_form.py`. It does not match inside a
    longer word, but in a script without spaces anywhere.
    """

    text: str

    @cached_property
    def parts(self) -> list[str]:
        """Its parts between white space, in normal form."""
        return folded(self.text).split()

    def spans(self, text: str) -> list[Span]:
        """Where it occurs in a text, in characters; no two overlap."""
        same = folded(text)
        if self.parts[0] not in same:
            return []
        starts, ends, same = folded_places(text)
        return [(starts[low], ends[high - 1]) for low, high in self._within(same)]

    def _within(self, same: str) -> Iterator[Span]:
        """Where it occurs in a text in normal form."""
        around = f" {same} "
        place = same.find(self.parts[0])
        while place >= 0:
            match = self._pattern.match(same, place)
            if match and _is_whole(around, *match.span()):
                yield match.span()
                place = same.find(self.parts[0], match.end())
            else:
                place = same.find(self.parts[0], place + 1)

    @cached_property
    def _pattern(self) -> re.Pattern:
        return re.compile(r"\s+".join(map(re.escape, self.parts)))


@dataclass(frozen=True)
class LinePiece:
    """A line, or a sentence of a long one.

    Attributes:
        start, end: in characters of its text.
        line: [start, end) of its line, likewise.
    """

    start: int
    end: int
    line: Span


def pieces(text: str, low: int, high: int, whole: bool = True) -> list[LinePiece]:
    """The lines of a text in [low, high); those over `LONG`, or in part outside, as sentences.

    Args:
        text: a part of a source, with more than `LONG` characters around [low, high), or all.
        low, high: in characters; only the part of a line within them is taken.
        whole: the text begins at the start of a line.
    """
    found, begin = [], text.rfind("\n", 0, low) + 1
    while begin < high:
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        line = stripped(text, begin, end)
        if line[0] < line[1]:
            cut = not whole and begin == 0
            within = low <= line[0] and line[1] <= high
            if within and line[1] - line[0] <= LONG and not cut:
                found.append(LinePiece(*line, line))
            else:
                first, last = max(line[0], low), min(line[1], high)
                inner = sentences(text[first:last]) if first < last else []
                found += [LinePiece(first + s, first + e, line) for s, e in inner]
        begin = end + 1
    return found


def best_piece(query: Query, text: str, among: Sequence[LinePiece]) -> LinePiece | None:
    """The piece with most of the query: by exact string, then weight, then words in order.

    Args:
        query: what to search for.
        text: the pieces' text.
        among: some of its pieces; ties go to the earlier.

    Returns:
        None where no piece has a word or an exact string of the query.
    """
    best, most = None, (False, 0.0, 0)
    for piece in among:
        own = text[piece.start : piece.end]
        score = (query.occurs(own), *query.weight(own))
        if score > most:
            best, most = piece, score
    return best


def shown(
    text: str, marked: Sequence[Span], weights: Sequence[float] = (), limit: int = LONG
) -> Span:
    """What to show of a line or sentence: all, or the `limit` characters with most matches.

    Args:
        text: the line.
        marked: the parts that match the query, ascending.
        weights: of each; equal by default.
        limit: characters to show; more where a match is longer.

    Returns:
        In characters; words are not cut, unless one is longer than the limit.
    """
    limit = max([limit, *(end - begin + 2 * _LEAD for begin, end in marked)])
    if len(text) <= limit:
        return 0, len(text)
    start, most = 0, 0.0
    counted = list(zip(marked, weights or [1.0] * len(marked), strict=True))
    starts = [begin for begin, _ in marked]
    for index, begin in enumerate(starts):
        first = max(0, begin - _LEAD)
        near = counted[index : bisect_right(starts, first + limit)]
        inside = sum(weight for (_, end), weight in near if end <= first + limit)
        if inside > most:
            start, most = first, inside
    start = _not_within(text, min(start, len(text) - limit))
    end = word_begin(text, min(len(text), start + limit))
    return stripped(text, start, end if end > start else min(len(text), start + limit))


def _can_be_searched(string: str) -> bool:
    """Whether a string is neither blank nor too long to be searched for verbatim."""
    return len(string) <= _LONGEST_STRING and bool(folded(string).split())


def _not_within(text: str, place: int) -> int:
    """The start of the next word, where a place is inside a word that is not too long."""
    end = word_end(text, place)
    return end if end - place < _LEAD else place


def _joined(spans: list[Span]) -> list[Span]:
    """Spans in order, with overlapping ones merged."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _is_whole(around: str, low: int, high: int) -> bool:
    """Whether [low, high) begins and ends neither inside a word nor inside a character.

    Args:
        around: the text in normal form, between two spaces that are not counted.
        low, high: in characters.
    """
    before, first, last, after = (kinds(around[n]) for n in (low, low + 1, high, high + 1))
    inside = (first in _WORD and before in _WORD + "m") or (last in _WORD and after in _WORD)
    return not inside and after != "m"
