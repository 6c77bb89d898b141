"""Mailboxes: main headers and text of each message, plain rather than HTML; names of attachments.

Malformed messages are read as well as possible.
"""

import re
from collections.abc import Generator, Iterator
from email import message_from_bytes
from email.message import Message
from typing import BinaryIO

from longctx.core.sources import formats
from longctx.core.sources.limits import CONVERTED, Share, require_held
from longctx.core.sources.mail import NONSENSE, filename, heads, own_texts
from longctx.core.sources.pieces import Piece, decoded, tidy

_QUOTED = re.compile(rb"^>(>*From )", re.M)


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
        head = "".join(f"{key}: {value}\n" for key, value in heads(message))
        text, bad = _body(message)
    except NONSENSE:
        head, (text, bad) = "", decoded(data, "utf-8")
    return Piece(tidy(f"{head}\n{text}\n"), number, undecodable=bad)


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


def _body(message: Message) -> tuple[str, int]:
    """The text of a message with the names of its attachments, and its undecodable places."""
    leaves = [part for part in message.walk() if not part.is_multipart()]
    own = {id(part): (text, bad) for part, text, bad in own_texts(leaves)}
    texts, bad = [], 0
    for part in leaves:
        if name := filename(part):
            texts.append(f"[attachment: {' '.join(name.split())}]\n")
        text, wrong = own.get(id(part), ("", 0))
        texts.append(text)
        bad += wrong
    return "".join(texts), bad
