"""Around the whole application: who may ask, and how much may be sent.

A client may leave at any moment, in the middle of its request or of its response. What was being
done for it is cancelled then, whichever route does it: nothing is answered, counted or logged.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from longctx.cli.serve import errors
from longctx.cli.serve.errors import Refused
from longctx.cli.serve.options import Options
from longctx.cli.serve.security import Rules

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

SLOW = 30.0  # seconds for a request in JSON, and for each part of a file
SLOWEST = 16 * 1024  # bytes a second of a file, after as many seconds
UPLOADS = "/api/ingest"  # the path that takes files
CLOSE = (b"connection", b"close")


class Guard:
    """An ASGI application around another.

    Args:
        app: the one inside.
        options: the server's.
        count: is called with the path and the status of every response.
    """

    def __init__(self, app: App, options: Options, count: Callable[[str, int], None]):
        self._app, self._options, self._count = app, options, count
        self._rules = Rules(options)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        request = _Request(scope, receive, send, self._options, self._count)
        try:
            self._rules.check(scope["method"], scope["path"], scope["headers"])
            await request.answer(self._app)
        except Exception as error:  # the last resort: no fault ends a connection unexplained
            if not request.status:  # else somebody told of it
                await request.refuse(errors.refusal(error))


class _Request:
    """One request: its body counted and timed, its response counted.

    Attributes:
        status: of the response, once it has begun; before that 0.
    """

    def __init__(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        options: Options,
        count: Callable[[str, int], None],
    ):
        self._scope, self._receive, self._send, self._count = scope, receive, send, count
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._uploads = scope["path"] == UPLOADS
        self._room = self._most = options.upload if self._uploads else options.body
        self._until = asyncio.get_running_loop().time() + SLOW
        self._first: Message | None = None  # what was read before anybody asked for it
        self.status = 0
        self._complete = False  # the response
        self._whole = asyncio.Event()  # the request
        self._gone = asyncio.Event()  # the client

    async def answer(self, app: App) -> None:
        """Has the application answer, until the client leaves."""
        self._require_room()
        answering = asyncio.ensure_future(self._answer(app))
        watching = asyncio.ensure_future(self._watch(answering))
        try:
            await answering
        except asyncio.CancelledError:
            if not self._gone.is_set():  # it is the server that ends
                answering.cancel()
                raise
        finally:
            watching.cancel()

    async def _answer(self, app: App) -> None:
        if not {b"content-length", b"transfer-encoding"} & {name for name, _ in self._headers}:
            self._first = await self._read()  # there is no body, and nobody may ask for it
        await app(self._scope, self._read, self._write)

    async def refuse(self, refused: Refused) -> None:
        """Sends an error."""
        await errors.response(refused)(self._scope, self._read, self._write)

    def _require_room(self) -> None:
        lengths = [value for name, value in self._headers if name == b"content-length"]
        if lengths and int(lengths[0]) > self._room:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, f"a request may have {self._most:,} bytes", "too_large")

    async def _read(self) -> Message:
        """The next part of the request; after the last one, waits until the client leaves.

        Raises:
            CancelledError: the client has left before its request was whole.
            Refused: 408 or 413.
        """
        first, self._first = self._first, None
        if first is not None:
            return first
        if self._whole.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout_at(self._deadline()):
                message = await self._receive()
        except TimeoutError:
            told = "the request took too long to arrive"
            raise Refused(408, told, "too_slow") from None
        if message["type"] == "http.disconnect":
            self._gone.set()
            raise asyncio.CancelledError
        self._room -= len(message.get("body", b""))
        if self._room < 0:
            raise self._too_large()
        if not message.get("more_body", False):
            self._whole.set()
        return message

    def _deadline(self) -> float:
        """When the next part must have come, in the event loop's seconds."""
        if not self._uploads:
            return self._until
        received = self._most - self._room
        part = asyncio.get_running_loop().time() + SLOW
        return min(part, self._until + received / SLOWEST)

    async def _watch(self, answering: "asyncio.Future[None]") -> None:
        """Cancels the answering where the client leaves after it has sent its request."""
        await self._whole.wait()
        await self._receive()
        if not self._complete:
            self._gone.set()
            answering.cancel()

    async def _write(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if not self._whole.is_set():  # the rest of the request is not read
                message["headers"] = [*message.get("headers", []), CLOSE]
            self._count(self._scope["path"], self.status)
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
        await self._send(message)
