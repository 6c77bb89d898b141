"""One connection: HTTP/1.1 as RFC 9112 has it, within the limits that docs/serve.md names.

uvicorn's parser is h11. It takes a request that has two lengths, and limits only heads that are not
complete yet; `Parser` refuses both. Errors that are found before there is a request to route have
the form and the headers of all others.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from longctx.cli.serve import errors
from longctx.cli.serve.errors import Refused

HEADERS_S = 10.0  # seconds for the head of a request
STALLED_S = 30.0  # seconds in which a client takes nothing of what is sent
LINGER_S = 2.0  # seconds in which a client that still sends may read why it is refused
HEAD = 16 * 1024  # bytes of a request's head
CODES = {431: "head_too_large", 501: "not_implemented"}  # others: bad_request
CLOSE = (b"connection", b"close")
FRAMING = {b"content-length", b"transfer-encoding"}


class Parser(h11.Connection):
    """h11's parser, which also refuses what RFC 9112 says is an attack, and a head too large.

    Attributes:
        error: why a request was refused, after `next_event` has raised.
        method: of the latest request.
    """

    error = h11.RemoteProtocolError("")
    method = b""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD)

    def next_event(self) -> Any:
        """The next event.

        Raises:
            RemoteProtocolError: the request breaks the protocol; `error_status_hint` is the status.
        """
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self.method = event.method
                _require_one_framing(event)
                _require_short_head(event)
        except h11.RemoteProtocolError as error:
            self.error = error
            raise
        return event


def _require_one_framing(request: h11.Request) -> None:
    """Refuses two lengths: a proxy may take the other one, and see other requests (6.1, 6.3)."""
    given = FRAMING & {name for name, _ in request.headers}
    if given == FRAMING:
        raise h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding")
    if b"transfer-encoding" in given and request.http_version < b"1.1":
        raise h11.RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding")


def _require_short_head(request: h11.Request) -> None:
    line = len(request.method) + len(request.target) + len("  HTTP/1.1\r\n")
    lines = sum(len(name) + len(value) + 4 for name, value in request.headers.raw_items())
    if line + lines + len("\r\n") > HEAD:
        raise h11.RemoteProtocolError("", error_status_hint=431)


class Closing:
    """A transport whose `close` lets a client that still sends read the response (RFC 9112, 9.6).

    Closed at once, the system would answer what still comes with a reset, and the client might lose
    the response.

    Args:
        transport: asyncio's.
        sends: says whether the client has more to send of its request.
        linger: ends the connection after `LINGER_S`.
    """

    def __init__(self, transport: Any, sends: Callable[[], bool], linger: Callable[[], object]):
        self._transport, self._sends, self._linger = transport, sends, linger
        self._closes = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more is sent or read."""
        return self._closes or self._transport.is_closing()

    def close(self) -> None:
        """Ends the connection after what was written; what still comes is dropped."""
        if self.is_closing():
            return
        self._closes = True
        if not self._sends():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has left meanwhile
            self._transport.abort()
            return
        self._transport.resume_reading()
        self._linger()


class Protocol(H11Protocol):
    """A connection, which is closed when its client stands still for too long."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.conn: Parser = Parser()
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: Any) -> None:
        """Waits for a request, but not for ever."""
        linger = partial(self._end_after, "linger", LINGER_S)
        closing: Any = Closing(transport, self._is_sending, linger)
        super().connection_made(closing)
        if self._most is not None and len(self.connections) > self._most:
            self.app = _refuse_connection
        self._end_after("head", HEADERS_S)

    def data_received(self, data: bytes) -> None:
        """A part of a request; the clock runs from its first part to the end of its head."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        between = self.cycle is None or self.cycle.response_complete
        if not (between and self.conn.their_state is h11.IDLE):
            self._stop("head")
        elif "head" not in self._timers:
            self._end_after("head", HEADERS_S)

    def send_400_response(self, msg: str) -> None:
        """Refuses what the parser could not read, and closes the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its body is broken: nothing waits for it any more
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = errors.response(_refusal(self.conn.error))
            headers = [*self.server_state.default_headers, *response.raw_headers, CLOSE]
            status = response.status_code
            head = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            self.transport.write(self.conn.send(head))
            if self.conn.method != b"HEAD":
                self.transport.write(self.conn.send(h11.Data(data=bytes(response.body))))
                self.conn.send(h11.EndOfMessage())
        self.transport.close()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._end_after("stalled", STALLED_S)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._stop("stalled")

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        for name in [*self._timers]:
            self._stop(name)
        super().connection_lost(exc)

    def _is_sending(self) -> bool:
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def _end_after(self, name: str, seconds: float) -> None:
        self._timers[name] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _refusal(error: h11.RemoteProtocolError) -> Refused:
    """What the client reads of an error in its request's form."""
    status = error.error_status_hint
    if status == 431:
        message = f"the head of a request may have {HEAD:,} bytes"
    else:
        why, _, _ = str(error).partition(": ")  # what follows quotes the request
        message = f"the request is not valid HTTP: {why}"
    return Refused(status, message, CODES.get(status, "bad_request"))


async def _refuse_connection(scope: Any, receive: Any, send: Any) -> None:
    """The application of connections beyond the limit."""
    message = "too many connections are open; try again in a few seconds"
    refused = Refused(503, message, "too_many_connections", headers={"Retry-After": "5"})
    refused.headers["Connection"] = "close"
    await errors.response(refused)(scope, receive, send)
