"""The output of a format: pieces of text, each with its place in the original.

Also what formats share: stream interfaces, how bytes of unknown encoding become text, and the
characters that no text may hold.
"""

import re
from typing import Any, NamedTuple, Protocol, Self

_NO_TEXT = re.compile("[\ud800-\udfff]")
_ANY = bytes(range(256)) * 2  # holds undecodable bytes in every encoding that has any


class Readable(Protocol):
    """Bytes, read forwards."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        ...


class Stream(Readable, Protocol):
    """Bytes to read and close, seekable or not: what files and decompressors share."""

    def seekable(self) -> bool:
        """Whether `seek` works."""
        ...

    def seek(self, offset: int, /) -> int:
        """Moves to a byte."""
        ...

    def close(self) -> None:
        """Closes the stream."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


class Piece(NamedTuple):
    """A piece of text.

    Attributes:
        text: the characters, with the line end that follows them.
        number: the page, chapter, cell, ... or line of the original that it begins on.
        lost: a message about a part of the original that is missing here, or empty.
        undecodable: places that could not be decoded, and are U+FFFD in `text`.
    """

    text: str
    number: int
    lost: str = ""
    undecodable: int = 0


def tidy(text: str) -> str:
    """Text without zero characters, and with U+FFFD for halves of surrogate pairs."""
    return _NO_TEXT.sub("\ufffd", text.replace("\0", ""))


def plain_lines(text: str) -> str:
    """Text with `\\n` for every line end, no trailing spaces, and a line end at its end.

    Empty if there is only white space.
    """
    lines = (line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    kept = "\n".join(lines).strip("\n")
    return kept + "\n" if kept else ""


def decoded(data: bytes, encoding: str) -> tuple[str, int]:
    """Decoded bytes, and the number of places that are invalid in this encoding."""
    try:
        return data.decode(encoding), 0
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    written = data.decode(encoding, "ignore").count("\ufffd")
    return text, text.count("\ufffd") - written


def known_encoding(name: str) -> str:
    """Python's name of the encoding that a document declares; empty if it cannot be right.

    A valid one is a superset of ASCII, as the declaration was read as ASCII. It can also replace
    undecodable bytes, unlike host name encodings and others that are not character sets.
    """
    probe = "a\\x41z"
    try:
        fits = probe.encode("ascii").decode(name) == probe
        _ANY.decode(name, "replace")
    except (LookupError, ValueError):
        return ""
    if name in ("latin-1", "latin1", "iso-8859-1", "ascii", "us-ascii"):
        return "cp1252"  # what such documents are in, if not in ASCII
    return name if fits else ""
