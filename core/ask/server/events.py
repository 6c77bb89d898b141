"""What a server answers, as pieces of text: server-sent events, or one JSON object.

Everything in it is another's: sizes are limited, and what is not text is refused.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

LINE = 1 << 20  # bytes of a line
WHOLE = 16 << 20  # bytes of an answer
SAID = 300  # characters of a server's message that are shown
END = "[DONE]"
_STOPS = {"stop": "end", "length": "length", "eos": "end", "eos_token": "end"}


class Nonsense(ValueError):
    """The server answers what makes no sense, or breaks off; the message says how."""


class Failed(Exception):
    """The server says in its answer that it failed; the message is its own."""


@dataclass(frozen=True)
class Piece:
    """A part of an answer.

    Attributes:
        text: what comes next; may be empty.
        stop: what ended the answer, as `Answer` names it; None: it goes on.
    """

    text: str
    stop: str | None = None


def streamed(source: IO[bytes]) -> Iterator[Piece]:
    """The pieces of a stream of events, to its end.

    Raises:
        Nonsense: it makes no sense, or ends before the answer does.
        Failed: the server says so.
    """
    is_over = False
    for data in _events(source):
        if data == END:
            return
        for piece in _pieces(_object(data), "delta"):
            is_over = is_over or piece.stop is not None
            yield piece
    if not is_over:
        raise Nonsense("the connection ended before the answer did")


def whole(source: IO[bytes]) -> Iterator[Piece]:
    """The same for one JSON object, of a server that does not stream.

    Raises:
        Nonsense, Failed: as `streamed`.
    """
    data = source.read(WHOLE + 1)
    if len(data) > WHOLE:
        raise Nonsense(f"it has more than {WHOLE:,} bytes")
    pieces = [*_pieces(_object(data), "message")]
    if not pieces:
        raise Nonsense("it has no answer in it")
    yield from pieces


def said(value: Any) -> str:
    """A server's own words on one line, from the JSON of an error or from text; may be empty."""
    if isinstance(value, dict):
        inner = next((value[k] for k in ("error", "message", "detail") if value.get(k)), "")
        return said(inner)
    if isinstance(value, list):
        return said(value[0]) if value else ""
    text = value if isinstance(value, str) else ""
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * SAID])
    return " ".join(printable.split())[:SAID].rstrip(". ")


def _events(source: IO[bytes]) -> Iterator[str]:
    """The data of each event."""
    held: list[str] = []
    size = 0
    while line := source.readline(LINE + 1):
        size += len(line)
        if len(line) > LINE or size > WHOLE:
            raise Nonsense(f"it has a line of {LINE:,} bytes, or more than {WHOLE:,} in all")
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("data:"):
            held.append(text[5:].removeprefix(" "))
        elif not text and held:
            yield "\n".join(held)
            held = []
    if held:  # the last event of some servers has no empty line behind it
        yield "\n".join(held)


def _object(data: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Nonsense("it is no JSON") from error
    if not isinstance(value, dict):
        raise Nonsense("it is no JSON object")
    if value.get("error"):
        raise Failed(said(value) or "it does not say why")
    return value


def _pieces(value: dict[str, Any], holder: str) -> Iterator[Piece]:
    choices = value.get("choices", [])
    if not isinstance(choices, list):
        raise Nonsense("its `choices` are no list")
    for choice in choices[:1]:
        part = choice.get(holder, {}) if isinstance(choice, dict) else None
        if not isinstance(part, dict):
            raise Nonsense(f"its choice has no `{holder}`")
        text, reason = part.get("content"), choice.get("finish_reason")
        if not isinstance(text, str | None) or not isinstance(reason, str | None):
            raise Nonsense("its answer is no text")
        stop = None if reason is None else _STOPS.get(reason, said(reason) or "end")
        # Half of a surrogate pair is no text, and cannot be printed or saved.
        yield Piece((text or "").encode("utf-8", "replace").decode(), stop)
