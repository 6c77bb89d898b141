"""Server-sent events: an answer that is shown while it is made."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from starlette.responses import Response, StreamingResponse

from longctx.cli.serve import errors
from longctx.cli.serve.work import Pieces

T = TypeVar("T")
PATIENCE = 10.0  # seconds without an event, after which a comment keeps the connection open
ALIVE = ": waiting\n\n"


def event(values: dict[str, Any], name: str = "") -> str:
    """One event, on lines of its own."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(values, allow_nan=False)}\n\n"


async def streamed(
    pieces: Pieces[T],
    begin: Callable[[], str],
    show: Callable[[str], str],
    end: Callable[[T], str],
    fail: Callable[[errors.Refused], str],
) -> Response:
    """A response with the pieces of an answer.

    It begins with the first piece, so that an error before that has a status of its own; or after a
    while, where the queue is long.

    Args:
        pieces: of the answer.
        begin: gives the events before the first piece.
        show: the events of a piece.
        end: the events of the whole answer.
        fail: the events of an error after the beginning.

    Raises:
        Exception: whatever the answer failed with, if it did so before anything was sent.
    """
    try:
        first = await pieces.next(PATIENCE)
    except BaseException:  # the client may have left
        pieces.close()
        raise

    async def body() -> AsyncIterator[str]:
        piece = first
        try:
            yield begin()
            while not pieces.ended:
                yield ALIVE if piece is None else show(piece)
                piece = await pieces.next(PATIENCE)
            yield end(pieces.answer)
        except Exception as error:  # the status was sent long ago
            yield fail(errors.refusal(error))
        finally:
            pieces.close()

    return StreamingResponse(body(), media_type="text/event-stream")
