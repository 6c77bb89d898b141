"""The word index of a document as tables: made from its text, and checked for consistency.

A table covers the units whose first tokens are in one range of 65,536 tokens; `docs/format.md`
lists its tensors under the group "words". Each table can be made by itself. Knows no scores.
"""

import codecs
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from longctx.core.common.errors import StateMismatch
from longctx.core.retrieve.unit_table import Units
from longctx.core.store.document import Document
from longctx.core.store.shards import AGAIN
from longctx.core.tokens.stems import LONGEST, cut, has_break, tokenized

FILE_TOKENS = 1 << 16  # of a document, in one table
MOST = 255  # the highest count of a word in a unit
_AHEAD = 4 * LONGEST + 8  # bytes after a unit that the rest of a word can take
_PART = 3  # characters that the bytes of a partial one can decode to
_BACK = 64  # units before a table searched for the start of letters without a break

Table = dict[str, np.ndarray]


def count_tables(units: Units) -> int:
    """How many tables the units of one document make; 0: it has no tokens."""
    return int(units.tokens[-1]) // FILE_TOKENS + 1 if len(units) else 0


def word_tables(document: Document, first_file: int = 0) -> Iterator[Table]:
    """The tables of a document in order, made from its text, one in memory at a time.

    A word belongs to the unit in which it begins.

    Args:
        document: open.
        first_file: the table to begin with.

    Yields:
        terms uint8 (bytes,), heads int32 (V + 1,), units int32 (P,), counts uint8 (P,), lengths
        int32 (U,), sources int32 (U,), tokens int64 (U,), bytes int64 (U,): see `docs/format.md`.

    Raises:
        StateMismatch: the document's text or tokens are damaged.
    """
    units = Units.of(document.manifest)
    for number in range(first_file, count_tables(units)):
        yield _table(document, units, *_range(units, number))


def read_table(document: Document, units: Units, number: int) -> Table:
    """A stored table, after checking everything that a search relies on.

    Args:
        document: open.
        units: those of this document alone.
        number: the table's, from 0.

    Raises:
        StateMismatch: it is missing, damaged, or belongs to another document.
    """
    table = document.words(number)
    low, high = _range(units, number)
    try:
        _check_postings(table, high - low)
        check_units(table, units, low, high, document)
    except ValueError as exc:
        name = document.manifest.name
        raise StateMismatch(f"file {number} of the words of '{name}' is damaged", str(exc)) from exc
    return table


def _range(units: Units, number: int) -> tuple[int, int]:
    """The first unit of a table and the one after its last."""
    ends = np.searchsorted(units.tokens, [number * FILE_TOKENS, (number + 1) * FILE_TOKENS])
    return int(ends[0]), int(ends[1])


def _check_postings(table: Table, count: int) -> None:
    """ValueError unless terms, heads, units and counts are consistent, for `count` units."""
    terms, heads, units, counts = (table[key] for key in ("terms", "heads", "units", "counts"))
    text = terms.tobytes()
    text.decode("utf-8")
    if len(heads) != text.count(b"\n") + 1 or (text and not text.endswith(b"\n")):
        raise ValueError("its terms are not as many as are counted")
    if heads[0] != 0 or heads[-1] != len(units) or (np.diff(heads) < 0).any():
        raise ValueError("its heads do not ascend to the number of its postings")
    if len(counts) != len(units) or not counts.all():
        raise ValueError("its counts are not those of its postings")
    if len(units) and not 0 <= units.min() <= units.max() < count:
        raise ValueError("it counts words of units that it does not have")
    ascending = np.diff(units) > 0
    ascending[heads[1:-1][(heads[1:-1] > 0) & (heads[1:-1] < len(units))] - 1] = True
    if not ascending.all():
        raise ValueError("the units of a term do not ascend")


def check_units(table: Table, units: Units, low: int, high: int, document: Document) -> None:
    """ValueError unless lengths and offsets are those of units [low, high) of the document.

    Args:
        table: of `word_tables`, at least what it says of units.
        units: those of this document alone.
        low, high: those of the table.
        document: open.
    """
    sources, starts = units.sources[low:high], table["bytes"]
    same = np.array_equal(table["sources"], sources)
    if not same or not np.array_equal(table["tokens"], units.tokens[low:high]):
        raise ValueError("its units are not those of the document")
    if len(table["lengths"]) != len(sources) or len(starts) != len(sources):
        raise ValueError("its units are not as many as the document's")
    if (table["lengths"] < 0).any():
        raise ValueError("a unit has fewer words than none")
    sizes = np.array([source.size for source in document.manifest.sources], np.int64)
    falling = (np.diff(starts) < 0) & (np.diff(sources) == 0)
    if (starts < 0).any() or (starts > sizes[sources]).any() or falling.any():
        raise ValueError("its units do not stand in their sources")


def _table(document: Document, units: Units, low: int, high: int) -> Table:
    """The table of units [low, high)."""
    sources, tokens = units.sources[low:high], units.tokens[low:high]
    starts = document.array_take("tokens", tokens, "starts")
    texts: list[str] = []
    for first, last in _runs(sources):
        texts += _texts(document, units, low + first, low + last, starts[first:last])
    terms, heads, posted, counts, lengths = _counted(texts)
    return {
        **{"terms": terms, "heads": heads, "units": posted, "counts": counts, "lengths": lengths},
        **{"sources": sources.copy(), "tokens": tokens.copy(), "bytes": starts},
    }


def _runs(sources: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of units of one source each."""
    borders = np.flatnonzero(np.diff(sources)) + 1
    return pairwise([0, *borders.tolist(), len(sources)])


def _texts(document: Document, units: Units, low: int, high: int, starts: np.ndarray) -> list[str]:
    """The text of each unit [low, high) of one source, cut between words."""
    number = int(units.sources[low])
    source = document.manifest.sources[number]
    end = source.size
    if high < len(units) and units.sources[high] == number:
        end = int(document.array_take("tokens", units.tokens[high : high + 1], "starts")[0])
    bounds = [*starts.tolist(), end]
    text, places = _decoded(document, number, [_before(document, units, low, bounds[0]), *bounds])
    cuts = [0]
    for place in places:
        cuts.append(cut(text, place, cuts[-1]))
    return [text[start:stop] for start, stop in pairwise(cuts[1:])]


def _decoded(document: Document, number: int, bounds: list[int]) -> tuple[str, list[int]]:
    """The text of a source from the first of `bounds` to some words after the last.

    Returns:
        The text, and the other bounds' places in it; a character across a bound is before it.
    """
    source = document.manifest.sources[number]
    ahead = min(bounds[-1] + _AHEAD, max(source.size, bounds[-1]))
    try:
        raw = document.text(number, bounds[0], ahead)
        if any(start > end for start, end in pairwise(bounds)):
            raise ValueError("the tokens of a source do not follow one another")
    except ValueError as exc:
        name, folder = document.manifest.name, document.manifest.folder
        raise StateMismatch(f"'{name}' is damaged", str(exc), AGAIN, folder) from exc
    decoder = codecs.getincrementaldecoder(source.codec)("replace")
    parts, places, count = [], [], 0
    for start, end in pairwise(bound - bounds[0] for bound in bounds):
        parts.append(decoder.decode(raw[start:end]))
        count += len(parts[-1])
        places.append(count + bool(decoder.getstate()[0]))
    parts.append(decoder.decode(raw[bounds[-1] - bounds[0] :], final=True))
    return "".join(parts), places


def _before(document: Document, units: Units, unit: int, here: int) -> int:
    """A byte of the source before a unit's first, `here`, from which its words are cut correctly.

    It is the first byte of an earlier unit of the source such that a word across `here` begins
    after it, or of the unit _BACK units before.
    """
    number, back = int(units.sources[unit]), 1
    first = int(np.searchsorted(units.sources, number))  # they ascend in one document
    while unit > first:
        earlier = max(first, unit - back)
        row = units.tokens[earlier : earlier + 1]
        start = int(document.array_take("tokens", row, "starts")[0])
        text, places = _decoded(document, number, [start, here])
        # If it begins within a character, the rest of that looks like a break.
        if earlier == first or back == _BACK or has_break(text[_PART : places[0]]):
            return start
        back *= 2
    return here


def _counted(texts: list[str]) -> tuple[np.ndarray, ...]:
    """terms, heads, units, counts and lengths of a table, from the text of each of its units."""
    counted = tokenized(texts)
    stems = sorted(counted.vocab, key=str.encode)
    rank = np.empty(len(stems), np.int64)  # of each stem's number
    rank[[counted.vocab[stem] for stem in stems]] = np.arange(len(stems))
    keys = rank[counted.ids] * len(texts) + counted.texts
    keys, counts = np.unique(keys, return_counts=True)
    stem, unit = np.divmod(keys, max(1, len(texts)))
    terms = bytearray("".join(f"{stem}\n" for stem in stems).encode())
    return (
        np.frombuffer(terms, np.uint8),
        np.searchsorted(stem, np.arange(len(stems) + 1)).astype(np.int32),
        unit.astype(np.int32),
        np.minimum(counts, MOST).astype(np.uint8),
        np.bincount(counted.texts, minlength=len(texts)).astype(np.int32),
    )
