"""Exact strings in documents: candidates from the word index, verified in the text.

A string without an indexed word ("C++", "is it") is searched for in the whole text, one part in
memory at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.passages.matching import ExactString
from longctx.core.passages.snippet import Snippet
from longctx.core.retrieve.lexical import WINDOW, PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.unit_table import UNIT, Units
from longctx.core.store.document import Document
from longctx.core.tokens.stems import stems

MOST_SCANNED = 1000  # occurrences kept of a string without words
_SURE = 32  # bytes of a string in UTF-8: with some more white space no more tokens than a unit has
_TOKENS = 3  # of a byte, at most: a character of one byte may take three in UTF-8
_FEW = 4  # windows that are sooner read than looked up
_PIECE = 1 << 20  # bytes of text searched at a time
_SPARE = 1024  # bytes of extra white space that an occurrence may have


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of a string in the text.

    Attributes:
        document, source: indices.
        start, end: its bytes in the source.
        unit: the unit in which it begins, numbered through all documents.
    """

    document: int
    source: int
    start: int
    end: int
    unit: int


def occurrences(
    documents: Sequence[Document], ranked: Ranked, index: PassageIndex | None, string: ExactString
) -> Iterator[Occurrence]:
    """Where a string occurs, best windows first; ties go to the earlier.

    Args:
        documents: open, in the order of the windows.
        ranked: the windows and their scores.
        index: the documents' words; None: there is none, and all text is searched.
        string: what to search for.

    Yields:
        Each occurrence once; for a string without words only the first `MOST_SCANNED`.

    Raises:
        StateMismatch: a document is damaged.
    """
    windows = None if index is None else _having(index, ranked.units, string)
    if windows is None:
        yield from _by_score(ranked, _scanned(documents, ranked.units, string))
        return
    seen: set[tuple[int, int, int]] = set()
    for window in windows[np.argsort(-ranked.scores[windows], kind="stable")].tolist():
        for found in _within(documents, ranked.units, window, string):
            key = found.document, found.source, found.start
            if key not in seen:
                seen.add(key)
                yield found


def unit_at(units: Units, document: int, source: int, byte: int) -> int:
    """The unit of a source that contains a byte; for bytes before its first token, the first."""
    low, high = units.first_units[document : document + 2].tolist()
    first, last = low + np.searchsorted(units.sources[low:high], [source, source + 1])
    place = np.searchsorted(units.starts[first:last], byte, side="right")
    return int(first + max(0, place - 1))


def bytes_of(documents: Sequence[Document], units: Units, first: int, last: int) -> tuple[int, int]:
    """The bytes of units [first, last] of one source."""
    start, end = int(units.starts[first]), None
    following = last + 1
    if following < len(units) and _source(units, following) == _source(units, last):
        end = int(units.starts[following])
    document, source = _source(units, last)
    return start, documents[document].manifest.sources[source].size if end is None else end


def _source(units: Units, unit: int) -> tuple[int, int]:
    return int(units.documents[unit]), int(units.sources[unit])


def _having(index: PassageIndex, units: Units, string: ExactString) -> np.ndarray | None:
    """The windows that have all indexed words of a string near; None: it has no such word.

    Words that begin within a unit's length of its beginning lie in the window made of the unit in
    which that is and the next one. The others are in these or in units soon after: of a library,
    most windows with the beginning are left out without a look into their documents.
    """
    words = stems(string.text)
    if not words:
        return None
    early = [stem for start, _, stem in words if len(string.text[:start].encode()) <= _SURE]
    having = [np.ones(len(units.windows), bool)]
    having += [index.counts(stem, WINDOW) > 0 for stem in dict.fromkeys(early)]
    windows = np.flatnonzero(np.logical_and.reduce(having))
    for stem in dict.fromkeys(stem for _, _, stem in words if stem not in early):
        if len(windows) <= _FEW:
            break
        begin, end = units.windows[windows].T
        reach = end + 2 + _TOKENS * _length(string) // UNIT
        spans = np.stack([begin, np.minimum(reach, units.ends[end])], axis=1)
        windows = windows[index.counts_in(stem, spans) > 0]
    return windows


def _within(
    documents: Sequence[Document], units: Units, window: int, string: ExactString
) -> Iterator[Occurrence]:
    """The occurrences of a string that begin in a window."""
    first, last = units.windows[window].tolist()
    document, source = _source(units, first)
    start, end = bytes_of(documents, units, first, last)
    ahead = min(documents[document].manifest.sources[source].size, end + _length(string))
    snippet = Snippet.of(documents[document], source, start, ahead)
    before = Snippet.of(documents[document], source, max(0, snippet.start - 8), snippet.start)
    for low, high in _matches(string, before.text + snippet.text):
        low, high = low - len(before.text), high - len(before.text)
        if low >= 0 and snippet.byte(low) < end:
            byte = snippet.byte(low)
            unit = unit_at(units, document, source, byte)
            yield Occurrence(document, source, byte, snippet.byte(high), unit)


def _scanned(
    documents: Sequence[Document], units: Units, string: ExactString
) -> Iterator[Occurrence]:
    """The first occurrences of a string in the whole text."""
    count, beyond = 0, _length(string)
    for number, document in enumerate(documents):
        for source, info in enumerate(document.manifest.sources if len(units) else ()):
            for start in range(0, info.size if info.tokens else 0, _PIECE):
                back = min(start, 8)
                until = min(info.size, start + _PIECE + beyond)
                snippet = Snippet.of(document, source, start - back, until)
                for low, high in _matches(string, snippet.text):
                    byte = snippet.byte(low)
                    if not start <= byte < start + _PIECE:
                        continue
                    unit = unit_at(units, number, source, byte)
                    yield Occurrence(number, source, byte, snippet.byte(high), unit)
                    count += 1
                    if count == MOST_SCANNED:
                        return


def _by_score(ranked: Ranked, found: Iterator[Occurrence]) -> list[Occurrence]:
    """Occurrences sorted by the scores of their windows; ties go to the earlier."""
    scores = ranked.units.best(ranked.scores)
    return sorted(found, key=lambda each: -float(scores[each.unit]))


def _matches(string: ExactString, text: str) -> Iterator[tuple[int, int]]:
    """Where a string occurs in a text, in characters."""
    lower, wanted = text.lower(), string.parts[0].lower()
    if len(lower) != len(text):  # a character with two lowercase ones: offsets have shifted
        yield from (match.span() for match in string.pattern.finditer(text))
        return
    place = lower.find(wanted)
    while place >= 0:
        match = string.pattern.match(text, place)
        if match:
            yield match.span()
        place = lower.find(wanted, match.end() if match else place + 1)


def _length(string: ExactString) -> int:
    """The most bytes that an occurrence may have."""
    return 4 * len(string.text) + _SPARE
