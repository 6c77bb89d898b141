"""The text that may be quoted: passages with white space made even, each byte known in its source.

A run of white space counts as one space here, also where a line breaks, so that an answer need not
break its lines as the source does. What is cited are the source's own bytes.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longctx.core.passages.boundaries import bounds
from longctx.core.passages.snippet import Snippet
from longctx.core.store.document import Document

_BETWEEN = b"\xff"  # in no UTF-8 text
_SPACES = re.compile(r"\s+")
_AROUND = 16  # bytes on each side that tell whether a passage begins or ends inside a word
# Encodings of which a byte does not tell whether it is a character's first: what stands before a
# passage cannot be read.
_READ_FORWARDS = frozenset(["cp932", "cp949", "gb18030", "big5"])
_UNKNOWN = "a"  # as if a word went on


@dataclass(frozen=True)
class Excerpt:
    """A passage to quote from.

    Attributes:
        document: the open document.
        source: the number of the source in it.
        snippet: the passage, and a little before and after it.
        low, high: the passage's first character in the snippet, and its end.
        before: what stands before the snippet, as far as it decides about words.
    """

    document: Document
    source: int
    snippet: Snippet
    low: int
    high: int
    before: str

    @classmethod
    def of(cls, document: Document, source: int, start: int, end: int) -> "Excerpt":
        """Bytes [start, end) of a source.

        Raises:
            StateMismatch: the text is damaged.
            ValueError: the source lacks these bytes.
        """
        where = document.manifest.sources[source]
        begin = start if where.codec in _READ_FORWARDS else max(0, start - _AROUND)
        snippet = Snippet.of(document, source, begin, min(where.size, end + _AROUND))
        low, high = snippet.since(start), snippet.since(end)
        return cls(document, source, snippet, low, high, _UNKNOWN if snippet.start else "")

    @property
    def text(self) -> str:
        """The passage's text."""
        return self.snippet.text[self.low : self.high]

    def quotable(self) -> tuple[np.ndarray, np.ndarray]:
        """Before which characters a quotation may begin, and before which it may end.

        Returns:
            Both (characters of the passage + 1,) bool.
        """
        begins, ends = bounds(self.before + self.snippet.text)
        skip = len(self.before)
        return begins[skip:][self.low : self.high + 1], ends[skip:][self.low : self.high + 1]


@dataclass(frozen=True)
class Span:
    """Where a quotation stands.

    Attributes:
        excerpt: the passage.
        start, end: bytes of its source.
        text: these bytes, decoded.
    """

    excerpt: Excerpt
    start: int
    end: int
    text: str


class Quotable:
    """Passages as one text in UTF-8, with 0xFF between them.

    Args:
        excerpts: best first: of equal quotations the first counts.

    Attributes:
        data: the text.
        begins: offsets in it at which a quotation may begin, ascending.
        ends: offsets in it at which one may end.
    """

    def __init__(self, excerpts: Sequence[Excerpt]):
        self._excerpts = excerpts
        self._offsets: list[int] = []  # of each excerpt
        self._places: list[np.ndarray] = []  # of each excerpt: offsets of its characters, and which
        self._characters: list[np.ndarray] = []
        self.data, self.begins, ends = b"", [], []
        for excerpt in excerpts:
            self._offsets.append(len(self.data))
            even, characters = evened(excerpt.text)
            encoded = [len(one.encode("utf-8", "replace")) for one in even]
            places = np.concatenate([[0], np.cumsum(encoded, dtype=np.int64)]) + len(self.data)
            may_begin, may_end = excerpt.quotable()
            self.begins += places[:-1][may_begin[characters[:-1]]].tolist()
            # A quotation ends behind its last character, not behind the space after it.
            ends += places[1:][may_end[characters[:-1] + 1]].tolist()
            self._places.append(places)
            self._characters.append(characters)
            self.data += even.encode("utf-8", "replace") + _BETWEEN
        self.ends = frozenset(ends)

    def span(self, start: int, end: int) -> Span:
        """Where the bytes [start, end) of `data` stand; they begin and end at allowed places."""
        number = bisect_right(self._offsets, start) - 1
        excerpt, places = self._excerpts[number], self._places[number]
        first, last = np.searchsorted(places, [start, end - 1], side="right") - 1
        characters = self._characters[number]
        low = excerpt.low + int(characters[first])
        high = excerpt.low + int(characters[last]) + 1
        snippet = excerpt.snippet
        return Span(excerpt, snippet.byte(low), snippet.byte(high), snippet.text[low:high])


def evened(text: str) -> tuple[str, np.ndarray]:
    """A text in which each run of white space is one space.

    Returns:
        The text, and for each of its characters the character of the original that it is, the first
        of a run; and the original's length: (characters + 1,) int64.
    """
    spaces = np.fromiter(map(str.isspace, text), bool, len(text))
    kept = np.flatnonzero(~(spaces & np.concatenate([[False], spaces[:-1]])))
    return _SPACES.sub(" ", text), np.append(kept, len(text))
