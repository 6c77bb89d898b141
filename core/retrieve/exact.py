"""Exact strings in documents: candidates from the word index, verified in the text.

A string without an indexed word ("C++", "is it") is searched for in the whole text, one part in
memory at a time.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.passages.matching import ExactString
from longctx.core.passages.snippet import Snippet
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.retrieve.ranked import Ranked
from longctx.core.retrieve.unit_table import Units
from longctx.core.store.document import Document
from longctx.core.tokens.letter_case import DOTTED, ODD, folded
from longctx.core.tokens.stems import WORD, stems

MOST_SCANNED = 1000  # occurrences kept of a string without words
_FEW = 4  # windows that are sooner read than looked up
_PIECE = 1 << 20  # bytes of text searched at a time
_SPARE = 1024  # bytes of extra white space that an occurrence may have
_END = re.compile("[a-z0-9]{1,2}$")  # of a stem: what the stemmer may have changed
_PLAIN = str.maketrans(ODD)


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

    Between the unit in which the string begins and that of one of its words, there is nothing but
    the string: units with few words, or with none where it has much white space. So of a library
    most windows are left out without a look into their documents.
    """
    text = folded(string.text)
    words = [word for word in stems(text) if not _vanishes(string.text[word[0] : word[1]])]
    if not words:
        return None
    odd = _odd(index.terms_with(letter for letter, plain in ODD.items() if plain in text))
    windows = np.arange(len(units.windows))
    looked: set[frozenset[str]] = set()
    for start, end, _ in words:
        terms = _terms(text[start:end], odd)
        if terms in looked:
            continue
        if looked and len(windows) <= _FEW:
            break
        looked.add(terms)
        spans = units.windows[windows]
        if start > 0:  # else the word begins where the string does
            first, last = spans.T
            reach = index.reach(first, _most_words(text[:start]))
            spans = np.stack([first, np.maximum(last, reach)], axis=1)
        windows = windows[np.any([index.counts_in(term, spans) > 0 for term in terms], axis=0)]
    return windows


def _most_words(text: str) -> int:
    """How many words of the index a folded text may be, whatever its case: see `_parts`.

    A stop word with an odd letter is a word.
    """
    return len(re.findall(WORD, text)) + text.count("i")


def _vanishes(word: str) -> bool:
    """Whether a word as it stands is none in the index: see `_parts`."""
    return DOTTED in word and not stems(word)


def _odd(terms: Iterable[str]) -> list[tuple[str, str]]:
    """Stems with letters that folding changes, each behind what of it is sure, folded.

    The stemmer knows no such letters. It leaves them, with all before them, and changes no more
    than the last two letters of what it leaves of those behind.
    """
    return [(_END.sub("", term).translate(_PLAIN), term) for term in terms]


def _terms(word: str, odd: Sequence[tuple[str, str]]) -> frozenset[str]:
    """What a word is in the index, whatever the case of its letters: one of these stems.

    Args:
        word: folded.
        odd: of the index; see `_odd`.
    """
    parts = _parts(word)
    found = {stem for part in parts for _, _, stem in stems(part)}
    for kept, term in odd:
        if any(part.startswith(kept) and part[len(kept) :].isascii() for part in parts):
            found.add(term)
    return frozenset(found)


def _parts(word: str) -> list[str]:
    """A word, and what the index may have of it where a text has a dotted capital for an i.

    The lower case of that is an i and a dot, which ends the word. The index has the part before the
    dot if that has two letters, else the part behind it; of a word of two letters it has nothing.
    """
    found: dict[str, None] = {}
    begins = range(len(word) - len(word.lstrip("i")) + 1)
    for part in (word[begin:] for begin in begins):
        if len(part) > 1 or part is word:
            found[part] = None
            found |= {part[: n + 1]: None for n in range(1, len(part) - 1) if part[n] == "i"}
    return [*found]


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
    same, wanted = folded(text), folded(string.parts[0])
    place = same.find(wanted)
    while place >= 0:
        match = string.pattern.match(text, place)
        if match:
            yield match.span()
        place = same.find(wanted, match.end() if match else place + 1)


def _length(string: ExactString) -> int:
    """The most bytes that an occurrence may have."""
    return 4 * len(string.text) + _SPARE
