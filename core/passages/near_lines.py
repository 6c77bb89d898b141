"""The lines around a place in a source, or all of its lines, read in parts."""

from collections.abc import Iterator

from longctx.core.passages.matching import LONG
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document

_SIDE = 4 * LONG + 8  # bytes read on each side of a passage to complete cut lines
_PIECE = 1 << 20  # bytes read at a time, and the longest line
_MOST = 1 << 16  # bytes of context on each side
# Encodings in which characters can be found from any place in the text.
_WIDTHS = {"utf-8": 1, "utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_WIDE = frozenset({"cp932", "gb18030", "cp949", "big5"})


def around(document: Document, source: int, start: int, end: int, side: int = _SIDE) -> Snippet:
    """Bytes [start, end) of a source with their surroundings, in whole characters.

    Args:
        document: open.
        source: its index.
        start: where a character begins.
        end: likewise, or the end of the source.
        side: bytes on each side.

    Raises:
        StateMismatch: the text is damaged.
    """
    info = document.manifest.sources[source]
    low, high = max(0, start - side), min(info.size, end + side)
    width = _WIDTHS.get(info.codec, 1)
    low -= low % width
    if info.codec in _WIDE and low:
        # Only after a newline is it known where a character begins.
        newline = document.text(source, low, start).find(b"\n")
        low = start if newline < 0 else low + newline + 1
    return Snippet.of(document, source, low, high)


def whole(snippet: Snippet) -> bool:
    """Whether a snippet is known to begin at the start of a line."""
    return snippet.start == 0 or snippet.encoding in _WIDE


def lines_of(document: Document, source: int) -> Iterator[tuple[Snippet, tuple[int, int]]]:
    """The lines of a source in order, each as [start, end) in characters of a snippet.

    A line longer than 1 MiB is given in parts.

    Raises:
        StateMismatch: the text is damaged.
    """
    place, size = 0, document.manifest.sources[source].size
    while place < size:
        snippet = Snippet.of(document, source, place, min(size, place + _PIECE))
        end = len(snippet.text)
        if place + _PIECE < size:
            end = snippet.text.rfind("\n") + 1 or max(1, end - 1)
        begin = 0
        while begin < end:
            newline = snippet.text.find("\n", begin, end)
            newline = end if newline < 0 else newline
            yield snippet, (begin, newline)
            begin = newline + 1
        place = max(place + 1, snippet.byte(end))


def context(
    document: Document, source: int, start: int, end: int, count: int
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The lines before and after a line.

    Args:
        document: open.
        source: its index.
        start, end: bytes of the line, or of a part of it.
        count: lines on each side; fewer where the source or 64 KiB end.

    Returns:
        The lines before, and those after: (first byte, text).
    """
    snippet = around(document, source, start, end, _MOST)
    text = snippet.text
    begin = text.rfind("\n", 0, snippet.since(start)) + 1
    earlier: list[tuple[int, str]] = []
    while begin > 0 and len(earlier) < count:
        previous = text.rfind("\n", 0, begin - 1) + 1
        if previous == 0 and not whole(snippet):
            break  # it may begin before the bytes read
        earlier.append((snippet.byte(previous), text[previous : begin - 1]))
        begin = previous
    later: list[tuple[int, str]] = []
    behind = text.find("\n", snippet.since(end)) + 1
    while 0 < behind < len(text) and len(later) < count:
        following = text.find("\n", behind)
        following = len(text) if following < 0 else following
        later.append((snippet.byte(behind), text[behind:following]))
        behind = following + 1
    return earlier[::-1], later
