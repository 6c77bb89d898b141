"""Passages in the lines around them, with what is highlighted, as parts of text.

Everything that is shown of a document comes from here. Knows nothing of HTML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from longctx.core.ask.place import Passage, Place
from longctx.core.ask.sentence import Sentence
from longctx.core.passages.near_lines import around, whole
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document

LINES = 3  # lines before and after a passage
LONG = 6000  # characters of a passage; of a longer one, so many around what answers are shown
SIDE = 2048  # bytes before and after it that are looked at for them

Span = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """A part of an excerpt in one look.

    Attributes:
        text: what it says.
        inside: it belongs to the passage.
        answers: it belongs to the sentence that answers.
        marked: it is the answer in that sentence, or a word of the question.
        best: it belongs to the line of the passage that has most of the question's words.
    """

    text: str
    inside: bool
    answers: bool = False
    marked: bool = False
    best: bool = False


@dataclass(frozen=True)
class Excerpt:
    """A passage with its surroundings, or a part of a long one.

    Attributes:
        segments: in the order of the text; together they are one stretch.
        before, after: characters of the passage that are left out on each side.
    """

    segments: tuple[Segment, ...]
    before: int = 0
    after: int = 0


def excerpt(document: Document, passage: Passage, sentence: Sentence | None) -> Excerpt:
    """A passage in the lines around it.

    Args:
        document: open, the passage's.
        passage: of it.
        sentence: the one that answers, which may stand in it; None: there is none.

    Raises:
        StateMismatch: the document is damaged.
    """
    source = source_of(document, passage)
    snippet = around(document, source, passage.start, passage.end, SIDE)
    own = snippet.containing(passage.start), snippet.since(passage.end)
    answer: Span = 0, 0
    marks: list[Span] = []
    if sentence is not None and _overlaps(sentence, passage, snippet):
        answer = snippet.containing(sentence.start), snippet.since(sentence.end)
        marks = [(answer[0] + low, answer[0] + high) for low, high in sentence.marks]
    best = _place(snippet.text, passage.best_text.strip(), own)
    if own[1] - own[0] > LONG:
        shown = _part(snippet.text, own, answer if answer[1] else best)
    else:
        shown = _lines_around(snippet, own, answer)
    text = snippet.text.replace("\r\n", " \n")  # a border may stand between the two
    return Excerpt(
        _segments(text, shown, own, answer, marks, best),
        before=max(0, shown[0] - own[0]),
        after=max(0, own[1] - shown[1]),
    )


def source_of(document: Document, place: Place) -> int:
    """The index of the source in which something of a document stands."""
    sources = document.manifest.sources
    named = [number for number, source in enumerate(sources) if source.name == place.source]
    fitting = (number for number in named if sources[number].size >= place.end)
    return next(fitting, named[0])


def _overlaps(sentence: Sentence, passage: Passage, snippet: Snippet) -> bool:
    """Whether the whole sentence is in the snippet, and a part of it in the passage."""
    if (sentence.document, sentence.source) != (passage.document, passage.source):
        return False
    end = snippet.start + len(snippet.raw)
    is_here = snippet.start <= sentence.start and sentence.end <= end
    return is_here and sentence.start < passage.end and passage.start < sentence.end


def _lines_around(snippet: Snippet, own: Span, answer: Span) -> Span:
    """The part of a snippet to show: the passage, and whole lines around it.

    A line that is longer than what was looked at begins, or ends, within a word.
    """
    text = snippet.text
    low, high = own if answer == (0, 0) else (min(own[0], answer[0]), max(own[1], answer[1]))
    first = text.rfind("\n", 0, low) + 1
    for _ in range(LINES):
        if first == 0:
            break
        earlier = text.rfind("\n", 0, first - 1) + 1
        if earlier == 0 and not whole(snippet):
            break  # that line may begin before
        first = earlier
    last = high
    for _ in range(LINES + 1):
        following = text.find("\n", last + 1)
        if following < 0:
            last = len(text)
            break
        last = following
    return first, last


def _part(text: str, own: Span, focus: Span) -> Span:
    """The part of a long passage around what matters in it, in whole lines if they are short."""
    middle = (focus[0] + focus[1]) // 2 if focus[1] else own[0]
    low = max(own[0], min(middle - LONG // 2, own[1] - LONG))
    high = min(own[1], low + LONG)
    if low > own[0]:
        low = text.find("\n", low, middle) + 1 or low
    if high < own[1]:
        high = text.rfind("\n", max(middle, low), high) + 1 or high
    return low, high


def _place(text: str, part: str, within: Span) -> Span:
    at = text.find(part, *within) if part else -1
    return (0, 0) if at < 0 else (at, at + len(part))


def _segments(
    text: str, shown: Span, own: Span, answer: Span, marks: Sequence[Span], best: Span
) -> tuple[Segment, ...]:
    """The shown part of a text, cut wherever its look changes."""
    low, high = shown
    borders = {low, high, *own, *answer, *best, *(place for mark in marks for place in mark)}
    cuts = sorted(place for place in borders if low <= place <= high)
    found = []
    for start, end in pairwise(cuts):
        look = {
            "inside": _has(own, start),
            "answers": _has(answer, start),
            "marked": any(_has(mark, start) for mark in marks),
            "best": _has(best, start),
        }
        if start < end:
            found.append(Segment(text[start:end], **look))
    return tuple(found)


def _has(span: Span, place: int) -> bool:
    return span[0] <= place < span[1]
