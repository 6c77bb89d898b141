"""An excerpt of a source for reading on: lines around a place, with what is marked in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longctx.core.passages.matching import Span
from longctx.core.passages.near_lines import around, whole
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document

MOST = 1 << 16  # bytes on each side, and of the place itself
_CHARACTER = 4  # bytes of one at most


@dataclass(frozen=True)
class Line:
    """A line, or a part of one where the excerpt begins or ends in it.

    Attributes:
        number: from 1, in the source's text.
        place: where it is in the original: a line, or a page or chapter ("p. 12").
        start: the byte of the source at which it begins.
        text: without its end of line.
        begins: it is the beginning of a line.
        marks: [start, end) in characters of `text`, in the order given; empty ones are left out.
    """

    number: int
    place: str
    start: int
    text: str
    begins: bool
    marks: tuple[Span, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of a line."""
        told = {"line": self.number, "place": self.place, "start": self.start, "text": self.text}
        return told | {"begins": self.begins, "marks": [list(mark) for mark in self.marks]}


@dataclass(frozen=True)
class Excerpt:
    """Neighbouring lines of a source.

    Attributes:
        source, name: of the source, its index and its name.
        size: bytes of the source.
        start, end: its own bytes of the source. One that begins at `end` goes on with the text.
        lines: in order; none where there are no bytes.
    """

    source: int
    name: str
    size: int
    start: int
    end: int
    lines: tuple[Line, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of an excerpt; `first` and `last` are the numbers of its lines."""
        lines = [line.as_dict() for line in self.lines]
        ends = (lines[0]["line"], lines[-1]["line"]) if lines else (0, 0)
        return {
            **{"source": self.source, "name": self.name, "size": self.size},
            **{"start": self.start, "end": self.end, "first": ends[0], "last": ends[1]},
            "lines": lines,
        }


def excerpt(
    document: Document,
    source: int,
    place: Span,
    before: int,
    after: int,
    marks: Sequence[Span] = (),
    within: Sequence[tuple[int, Span]] = (),
) -> Excerpt:
    """The lines at a place of a source and around it.

    Args:
        document: open.
        source: its index.
        place: bytes [start, end) of the source; cut to what there is, and to 64 KiB.
        before, after: bytes to read on each side, at most 64 KiB. What is cut begins and ends with
            a line, except where that would leave nothing of a side.
        marks: bytes [start, end) of the source to mark.
        within: the same, as characters [start, end) of the text that begins at a byte.

    Raises:
        StateMismatch: the text is damaged.
    """
    info = document.manifest.sources[source]
    size = info.size
    start = min(max(0, place[0]), size)
    end = min(max(start, place[1]), size, start + MOST)
    before, after = min(max(0, before), MOST), min(max(0, after), MOST)
    # The character before shows whether a line begins.
    snippet = around(document, source, start, end, max(before, after) + _CHARACTER)
    low, high = _cut(snippet, size, (start, end), before, after)
    spans = [(snippet.containing(a), snippet.since(b)) for a, b in marks if a < b]
    for byte, (first, last) in within:
        if snippet.start <= byte <= snippet.byte(len(snippet.text)):
            begin = snippet.since(byte)
            spans.append((begin + first, begin + last))
    lines = tuple(_lines(document, source, snippet, low, high, spans))
    return Excerpt(source, info.name, size, snippet.byte(low), snippet.byte(high), lines)


def _cut(snippet: Snippet, size: int, place: Span, before: int, after: int) -> Span:
    """The characters of a snippet that are shown, for `before` and `after` bytes of a place."""
    text, (start, end) = snippet.text, place
    first, last = snippet.since(start), snippet.since(end)
    low = snippet.since(start - before) if before else first
    high = snippet.since(min(size, end + after)) if after else last
    if before and snippet.byte(low) > 0:
        newline = text.find("\n", low, max(low, first - 1))  # one just before leaves nothing
        low = low if newline < 0 else newline + 1
    if after and snippet.byte(high) < size:
        newline = text.rfind("\n", last, high)
        high = high if newline < 0 else newline + 1
    return low, high


def _lines(
    document: Document, source: int, snippet: Snippet, low: int, high: int, spans: Sequence[Span]
) -> list[Line]:
    """The lines of characters [low, high) of a snippet."""
    text, found = snippet.text, list[Line]()
    origin = document.manifest.sources[source].origin
    number = document.line(source, snippet.byte(low)) if low < high else 1
    begins = text[low - 1] == "\n" if low else whole(snippet)
    while low < high:
        newline = text.find("\n", low, high)
        stop, after = (high, high) if newline < 0 else (newline, newline + 1)
        if text[stop - 1 : stop] == "\r" and low < stop:
            stop -= 1
        marked = tuple(
            (max(a, low) - low, min(b, stop) - low) for a, b in spans if max(a, low) < min(b, stop)
        )
        byte = snippet.byte(low)
        place = document.place(source, byte) if origin and origin.marks else str(number)
        found.append(Line(number, place, byte, text[low:stop], begins, marked))
        low, number, begins = after, number + 1, True
    return found
