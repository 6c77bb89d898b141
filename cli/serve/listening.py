"""The socket, and uvicorn on it: its settings, and an end by Ctrl-C."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from longctx.cli.serve.log_limit import REPORT_S, LogLimit
from longctx.cli.serve.protocol import Protocol
from longctx.cli.serve.security import ALWAYS
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.interrupts import ENDING

KEPT_S = 20  # seconds for which a connection is kept for a further request
ENDING_S = 3  # seconds for answers to end, before they are ended
BACKLOG = 128
BESIDE = 256  # connections beside those whose requests wait


class Server(uvicorn.Server):
    """Serves until Ctrl-C or `kill`, which are an ordinary end of it.

    Args:
        app: the application.
        waiting: requests that may wait.
        ready: is called when it listens.
    """

    def __init__(self, app: Any, waiting: int, ready: Callable[[], None] = lambda: None):
        self._limit = LogLimit()
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # else a client could say who it is
            server_header=False,
            limit_concurrency=waiting + BESIDE,
            backlog=BACKLOG,
            timeout_keep_alive=KEPT_S,
            timeout_graceful_shutdown=2 * ENDING_S,
            headers=[*ALWAYS.items()],
            callback_notify=self._report,
            timeout_notify=REPORT_S,
        )
        super().__init__(config)
        self._ready = ready

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until it is ended, with a limit on what is logged."""
        with self._limit:
            await super().serve(sockets)

    async def _report(self) -> None:
        self._limit.report()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends; answers that are not complete in time end as if their clients had left."""
        timer = asyncio.get_running_loop().call_later(ENDING_S, self._disconnect)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
            self._disconnect()  # what a second Ctrl-C does not wait for
            if tasks := self.server_state.tasks:
                await asyncio.wait(tasks, timeout=ENDING_S)

    def _disconnect(self) -> None:
        for connection in [*self.server_state.connections]:
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The handler of Ctrl-C and `kill`; a second one does not wait for answers."""
        self.force_exit, self.should_exit = self.should_exit, True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """The handlers while it serves; unlike uvicorn's, no signal comes again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread
            return
        before = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: a name or an address.
        port: 0: any free one.

    Raises:
        UsageError: there is no such address here.
        LongctxError: the port is taken, or not allowed.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"cannot serve at {host!r}", why, "Give --host an address of this machine."
        ) from error
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would share the port with another program
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        why, remedy = error.strerror or str(error), "Give another --port, or 0 for any free one."
        raise LongctxError(f"cannot serve at {host}:{port}", why, remedy) from error
    listening.setblocking(False)
    return listening


def address_of(listening: socket.socket, host: str) -> str:
    """The address of the page, for people."""
    port = listening.getsockname()[1]
    name = "localhost" if host in ("", "0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
