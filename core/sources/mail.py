"""Mail as it is sent (MIME): headers, texts and names, read as well as they can be."""

from collections.abc import Iterator
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message

from longctx.core.sources.letters import of_page
from longctx.core.sources.pieces import decoded, known_encoding, plain_lines

HEADERS = ("From", "To", "Cc", "Date", "Subject")
# What Python's library may raise for malformed mail, despite its documentation.
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, MessageError)
NONSENSE += (RecursionError,)


def heads(message: Message) -> list[tuple[str, str]]:
    """The headers that are read, decoded."""
    return [(key, _header(message, key)) for key in HEADERS if message[key]]


def _header(message: Message, key: str) -> str:
    raw = str(message[key])
    try:
        return " ".join(str(make_header(decode_header(raw))).split())
    except NONSENSE:
        return " ".join(raw.split())


def own_texts(leaves: list[Message]) -> Iterator[tuple[Message, str, int]]:
    """The parts that are a message's own text, plain rather than HTML, and undecodable places."""
    kinds = {part.get_content_type() for part in leaves if not filename(part)}
    for part in leaves:
        kind = part.get_content_type()
        if filename(part) or not (
            kind == "text/plain" or (kind == "text/html" and "text/plain" not in kinds)
        ):
            continue
        text, bad = _text(part)
        yield part, plain_lines(of_page(text) if kind == "text/html" else text), bad


def filename(part: Message) -> str:
    """The name of an attachment; a placeholder if the name is invalid; empty if it is none."""
    try:
        return part.get_filename() or ""
    except NONSENSE:
        return "(its name is malformed)"


def payload(part: Message) -> bytes:
    """The bytes of a part, decoded."""
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _text(part: Message) -> tuple[str, int]:
    try:
        said = part.get_content_charset() or ""
    except NONSENSE:
        said = ""
    return decoded(payload(part), known_encoding(said.lower()) or "utf-8")
