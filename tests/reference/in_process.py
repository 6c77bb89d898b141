"""The parsing of files without a program of its own: for what tests change or watch in it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from longctx.core.sources import parser, wire
from longctx.core.sources.parsing import OutOfMemory, Parsing


class Here:
    """Answers as the program does, by the same code, through the same frames."""

    def __init__(self) -> None:
        self.known, self._parsing = 0, Parsing()

    def ask(self, told: dict[str, Any], data: bytes, allowed: parser.Allowed):
        """The answer to a request."""
        try:
            answer = self._parsing.answer(*through(told, data))
        except OutOfMemory as error:
            raise allowed.too_large() from error
        return through(*answer)

    def end(self) -> None:
        """Forgets all that it was told."""
        self.known += 1
        self._parsing = Parsing()


def through(told: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """What comes of a frame at its other end."""
    pipe = io.BytesIO()
    wire.write(pipe, told, data)
    pipe.seek(0)
    return wire.read(pipe)


@contextmanager
def parsed_here() -> Iterator[None]:
    """Files are parsed in this process meanwhile."""
    before = parser.answered_by(Here())
    try:
        yield
    finally:
        parser.answered_by(before)
