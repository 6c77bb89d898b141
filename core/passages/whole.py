"""What answers a question that no few words do: a whole sentence, or a whole list of steps.

Such are questions that ask why or how, or that want yes or no. English words are known.
"""

import re

from longctx.core.passages.near_lines import around, whole
from longctx.core.passages.sentences import sentences
from longctx.core.passages.snippet import Snippet
from longctx.core.passages.wrapping import unquoted, unwrapped
from longctx.core.store.document import Document

LONGEST = 1000  # characters of a sentence; of a longer one the pointed words alone are the answer
LIST = 3000  # bytes of a list on each side of the place
INTRO = 300  # characters of the line that leads to a list
_AUXILIARY = (
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might"
    r"|must|need)"
)
_ASKED = re.compile(rf"\W*(?:why\b|how\s+(?:come|to|{_AUXILIARY})\b|{_AUXILIARY}\s+\w)", re.I)
_ITEM = re.compile(r"[^\S\n]*(?:[-+*\u2022]|\(?(?:\d{1,3}|[a-z])[.)]|step\s+\d+\b)\s", re.I)


def wants_whole(question: str) -> bool:
    """Whether a question asks why or how, or for yes or no."""
    return _ASKED.match(question) is not None


def wants_steps(question: str) -> bool:
    """Whether such a question asks how: then a list of steps is one answer."""
    return re.match(r"\W*how\b", question, re.I) is not None


def whole_answer(
    document: Document, source: int, start: int, end: int, steps: bool = True
) -> tuple[int, int]:
    """The sentence, or the list of items, that a place stands in.

    Args:
        document: open.
        source: its index.
        start, end: bytes of the place, at most a few hundred.
        steps: a list is wanted whole.

    Returns:
        Bytes of the source; the place itself where its sentence is too long, or is cut off.

    Raises:
        StateMismatch: the text is damaged.
    """
    snippet = around(document, source, start, end, LIST)
    begins = snippet.start == 0 or (whole(snippet) and snippet.start < start)
    stops = snippet.start + len(snippet.raw) == document.manifest.sources[source].size
    low, high = snippet.containing(start), snippet.since(end)
    found = _items(snippet.text, low, high, begins, stops) if steps else None
    found = found or _sentence(snippet, low, high, begins, stops)
    return (snippet.byte(found[0]), snippet.byte(found[1])) if found else (start, end)


def is_list(text: str) -> bool:
    """Whether a text is a list of at least two items, perhaps behind a line that leads to it."""
    lines = _lines(text.strip())
    return len(lines) > 1 and sum(_is_item(text.strip(), line) for line in lines) > 1


def _sentence(
    snippet: Snippet, low: int, high: int, begins: bool, stops: bool
) -> tuple[int, int] | None:
    """The sentences that characters [low, high) touch; None: too long, or they may be cut off."""
    text = unwrapped(snippet.text)
    spans = sentences(text)
    touched = [n for n, (first, last) in enumerate(spans) if first < high and last > low]
    if not touched or (touched[0] == 0 and not begins):
        return None
    if touched[-1] == len(spans) - 1 and not stops:
        return None
    first, last = spans[touched[0]][0], spans[touched[-1]][1]
    first += unquoted(text[first:last])
    return (first, last) if last - first <= LONGEST else None


def _items(text: str, low: int, high: int, begins: bool, stops: bool) -> tuple[int, int] | None:
    """The list with at least two items that characters [low, high) stand in.

    A list ends at an empty line that no item follows, and at a line that is neither an item nor
    set in; the line before it belongs to it if that ends with a colon.
    """
    lines = _lines(text)
    at = [n for n, (first, last) in enumerate(lines) if first < high and last >= low]
    top, bottom = at[0], at[-1]
    while top > 0 and _goes_on(text, lines, top):
        top -= 1
    if not _is_item(text, lines[top]):
        return None
    while top > 0 and (above := _item_above(text, lines, top)) is not None:
        top = above
    while bottom + 1 < len(lines) and (below := _below(text, lines, bottom)) is not None:
        bottom = below
    count = sum(_is_item(text, line) for line in lines[top : bottom + 1])
    cut = (top == 0 and not begins) or (bottom == len(lines) - 1 and not stops)
    if count < 2 or cut or _goes_on_outside(text, lines, top, bottom):
        return None
    intro = _intro(text, lines, top, begins)
    return lines[intro][0], lines[bottom][1]


def _goes_on_outside(text: str, lines: list[tuple[int, int]], top: int, bottom: int) -> bool:
    """Whether items are wrapped without being set in, so that lines of the list were missed."""
    below = bottom + 1 < len(lines) and lines[bottom + 1][0] < lines[bottom + 1][1]
    near = lines[max(0, top - 2) : top]
    above = len(near) == 2 and _is_item(text, near[0]) and near[1][0] < near[1][1]
    return below or above


def _lines(text: str) -> list[tuple[int, int]]:
    spans, start = [], 0
    for line in text.split("\n"):
        spans.append((start, start + len(line.rstrip())))
        start += len(line) + 1
    return spans


def _is_item(text: str, line: tuple[int, int]) -> bool:
    return _ITEM.match(text, *line) is not None


def _goes_on(text: str, lines: list[tuple[int, int]], number: int) -> bool:
    """Whether a line is set in below an item, and none itself."""
    first, last = lines[number]
    return first < last and text[first].isspace() and not _is_item(text, lines[number])


def _item_above(text: str, lines: list[tuple[int, int]], number: int) -> int | None:
    """The line of the item before one, over lines that are set in and one empty line."""
    above = number - 1
    if above > 0 and lines[above][0] == lines[above][1]:
        above -= 1
    while above > 0 and _goes_on(text, lines, above):
        above -= 1
    return above if _is_item(text, lines[above]) else None


def _below(text: str, lines: list[tuple[int, int]], number: int) -> int | None:
    """The line that goes on with a list behind one of its lines."""
    below = number + 1
    if _is_item(text, lines[below]) or _goes_on(text, lines, below):
        return below
    empty = lines[below][0] == lines[below][1]
    beyond = below + 1 < len(lines) and _is_item(text, lines[below + 1])
    return below + 1 if empty and beyond else None


def _intro(text: str, lines: list[tuple[int, int]], top: int, begins: bool) -> int:
    """The line before a list that leads to it, or its first line."""
    above = top - 1
    if above > 0 and lines[above][0] == lines[above][1]:
        above -= 1
    if above < 0 or (above == 0 and not begins):
        return top
    first, last = lines[above]
    return above if last - first <= INTRO and text[first:last].endswith(":") else top
