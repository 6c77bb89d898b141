"""What a format gives: pieces of text, each with its place in the original.

Also what formats share: what they read, how bytes of unknown encoding become text, and what no text
may hold.
"""

import re
from typing import Any, NamedTuple, Protocol, Self

_NO_TEXT = re.compile("[\ud800-\udfff]")
_ANY = bytes(range(256)) * 2  # has what is undecodable in every encoding that something is in


class Readable(Protocol):
    """Bytes that are read forwards."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        ...


class Stream(Readable, Protocol):
    """Bytes that are read, perhaps sought in, and closed: what files and decompressors share."""

    def seekable(self) -> bool:
        """Whether `seek` works."""
        ...

    def seek(self, offset: int, /) -> int:
        """Goes to a byte."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


class Piece(NamedTuple):
    """A piece of text.

    Attributes:
        text: the characters, with the line end that follows them.
        number: of the page, chapter, cell, ... or line of the original that it begins on.
        lost: why a part of the original is missing here; a message, or empty.
        undecodable: places whose bytes are no text, and stand in `text` as U+FFFD.
    """

    text: str
    number: int
    lost: str = ""
    undecodable: int = 0


def tidy(text: str) -> str:
    """Text without zero characters, and with U+FFFD for halves of surrogate pairs."""
    return _NO_TEXT.sub("\ufffd", text.replace("\0", ""))


def plain_lines(text: str) -> str:
    """Text with `\\n` for every line end, without spaces at their ends, and a line end at its end.

    Empty where there is nothing but white space.
    """
    lines = (line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    kept = "\n".join(lines).strip("\n")
    return kept + "\n" if kept else ""


def decoded(data: bytes, encoding: str) -> tuple[str, int]:
    """Text of bytes, and the number of places that are none in this encoding."""
    try:
        return data.decode(encoding), 0
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    written = data.decode(encoding, "ignore").count("\ufffd")
    return text, text.count("\ufffd") - written


def known_encoding(name: str) -> str:
    """Python's name of an encoding that a document says it has; empty: none that can be right.

    Such an encoding has ASCII as it is: what said its name was read as ASCII. And it can replace
    what is none of it, which those of names of hosts cannot, nor others that are no character sets.
    """
    probe = "a\\x41z"
    try:
        fits = probe.encode("ascii").decode(name) == probe
        _ANY.decode(name, "replace")
    except (LookupError, ValueError):
        return ""
    if name in ("latin-1", "latin1", "iso-8859-1", "ascii", "us-ascii"):
        return "cp1252"  # which is what such documents are in, if not just in ASCII
    return name if fits else ""
