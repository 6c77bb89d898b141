"""Mailboxes: main headers and text of each message, plain rather than HTML; names of attachments.

Malformed messages are read as well as possible.
"""

import re
from collections.abc import Generator, Iterator
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import CONVERTED, Share, require_held
from longctx.core.sources.markup import text_of
from longctx.core.sources.pieces import Piece, decoded, known_encoding, plain_lines, tidy

HEADERS = ("From", "To", "Cc", "Date", "Subject")
_QUOTED = re.compile(rb"^>(>*From )", re.M)
# What Python's library may raise for malformed mail, despite its documentation.
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, MessageError)
NONSENSE += (RecursionError,)


class Format(formats.Format):
    """One piece per message."""

    marks = "message"
    streams = True

    def convert(self, file: BinaryIO, name: str, share: Share) -> Generator[Piece]:
        """See `formats.Format`."""
        for number, data in enumerate(_messages(file, name), 1):
            yield _piece(_QUOTED.sub(rb"\1", data), number)


def _piece(data: bytes, number: int) -> Piece:
    """A message; one that Python's library cannot parse is given verbatim."""
    try:
        message = message_from_bytes(data)
        heads = "".join(f"{key}: {_header(message, key)}\n" for key in HEADERS if message[key])
        text, bad = _body(message)
    except NONSENSE:
        heads, (text, bad) = "", decoded(data, "utf-8")
    return Piece(tidy(f"{heads}\n{text}\n"), number, undecodable=bad)


def _messages(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes of each message, without its separator line."""
    held: list[bytes] | None = None
    size, blank = 0, True
    while line := file.readline(CONVERTED + 1):
        if blank and line.startswith(b"From "):
            if held is not None:
                yield b"".join(held)
            held, size = [], 0
        elif held is not None:
            held.append(line)
        elif line.strip():
            raise ValueError("it does not begin with 'From '")
        size, blank = size + len(line), not line.strip()
        require_held(name, size)
    if held is not None:
        yield b"".join(held)


def _header(message: Message, key: str) -> str:
    raw = str(message[key])
    try:
        return " ".join(str(make_header(decode_header(raw))).split())
    except NONSENSE:
        return " ".join(raw.split())


def _body(message: Message) -> tuple[str, int]:
    """The text of a message, and the number of undecodable places."""
    leaves = [part for part in message.walk() if not part.is_multipart()]
    names = [_filename(part) for part in leaves]
    kinds = {p.get_content_type() for p, name in zip(leaves, names, strict=True) if not name}
    texts, bad = [], 0
    for part, name in zip(leaves, names, strict=True):
        kind = part.get_content_type()
        if name:
            texts.append(f"[attachment: {' '.join(name.split())}]\n")
        elif kind == "text/plain" or (kind == "text/html" and "text/plain" not in kinds):
            text, wrong = _text(part)
            bad += wrong
            if kind == "text/html":
                text = "".join(piece.text for piece in text_of(text))
            texts.append(plain_lines(text))
    return "".join(texts), bad


def _filename(part: Message) -> str:
    """The name of an attachment; a placeholder if the name is invalid."""
    try:
        return part.get_filename() or ""
    except NONSENSE:
        return "(its name is malformed)"


def _text(part: Message) -> tuple[str, int]:
    data = part.get_payload(decode=True)
    try:
        said = part.get_content_charset() or ""
    except NONSENSE:
        said = ""
    encoding = known_encoding(said.lower()) or "utf-8"
    return decoded(data if isinstance(data, bytes) else b"", encoding)
