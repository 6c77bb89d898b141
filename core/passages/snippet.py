"""A snippet of a source: its text, with the byte offset of each character."""

import codecs
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longctx.core.store.document import Document

_BACK = 3  # the most bytes of a UTF-8 character before one of its bytes
_UNKNOWN = "\ufffd"


@dataclass(frozen=True)
class Snippet:
    """Bytes [start, start + len(raw)) of a source, decoded; undecodable bytes become U+FFFD.

    Attributes:
        start: the byte of the source at which it begins; in UTF-8 the first of a character.
        raw: the bytes.
        encoding: the encoding of the bytes.
        text: the bytes decoded.
    """

    start: int
    raw: bytes
    encoding: str
    text: str

    @classmethod
    def of(cls, document: Document, source: int, start: int, end: int) -> "Snippet":
        """Bytes [start, end) of a source; in UTF-8 from the start of the character at `start`.

        Raises:
            StateMismatch: the text is damaged.
            ValueError: the source lacks these bytes.
        """
        encoding = document.manifest.sources[source].codec
        back = min(start, _BACK) if encoding == "utf-8" else 0
        raw = document.text(source, start - back, end)
        while back and raw[back : back + 1] and raw[back] & 0xC0 == 0x80:
            back -= 1
            start -= 1
        raw = raw[back:]
        return cls(start, raw, encoding, raw.decode(encoding, "replace"))

    @cached_property
    def places(self) -> np.ndarray:
        """The byte of the source at which each character begins, and the end: (len(text) + 1,)."""
        count = len(self.text)
        if count == len(self.raw):
            own = np.arange(count + 1)
        elif self.encoding == "utf-8" and _UNKNOWN not in self.text:
            begins = np.frombuffer(self.raw, np.uint8) & 0xC0 != 0x80
            own = np.append(np.flatnonzero(begins), len(self.raw))
        else:
            own = _places(self.raw, self.encoding)
        return own + self.start

    def byte(self, place: int) -> int:
        """The byte of the source at which a character begins; `len(text)`: the end."""
        return int(self.places[place])

    def containing(self, byte: int) -> int:
        """The character containing a byte of the source."""
        return int(np.searchsorted(self.places, byte, side="right")) - 1

    def since(self, byte: int) -> int:
        """The first character that begins at or after a byte of the source."""
        return int(np.searchsorted(self.places, byte))


def _places(raw: bytes, encoding: str) -> np.ndarray:
    """The byte at which each character begins, and the end, byte by byte."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    places, begun = [], 0
    for number in range(len(raw)):
        for _ in decoder.decode(raw[number : number + 1]):
            places.append(begun)
            begun = number  # a second character from one byte starts at this byte
        if not decoder.getstate()[0]:
            begun = number + 1
    places += [begun] * len(decoder.decode(b"", final=True))
    return np.array([*places, len(raw)], np.int64)
