"""The connection to a server: one request, its answer piece by piece, and errors in our words.

No redirection is followed: text goes to the address that the user named, or nowhere. Proxies of the
environment are used for https alone, through a tunnel that they cannot look into.
"""

import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlsplit

from longctx.core.ask.server.address import CHAT, KEY, Server, is_loopback
from longctx.core.ask.server.events import Failed, Nonsense, Piece, said, streamed, whole
from longctx.core.common.errors import NoAnswer, UsageError
from longctx.core.common.foreign import reason
from longctx.core.common.interrupts import at_end, check

CONNECT = 10.0  # seconds to reach it
SILENCE = 600.0  # seconds without a byte: a CPU may read passages for minutes
LISTED = 4 << 20  # bytes of a list of models
BLAMED = 1 << 16  # bytes of an error
SHOWN = 8  # models named in a message
LOOK = "Look into the server's log, and ask again."
CORRECT = "Start the server, or correct --answer-with."
OTHER_NAMES = {"max_tokens": "max_completion_tokens"}  # as newer models of OpenAI want it
OPTIONAL = ("temperature",)  # left out where a model refuses it and the user did not set it


def model_of(server: Server) -> str:
    """The model to ask: the one named, or the only one that the server has.

    Raises:
        UsageError: it has several, or does not list them.
        NoAnswer: it cannot be reached.
    """
    if server.model is not None:
        return server.model
    names = _models(server)
    if len(names) == 1:
        return names[0]
    why = f"it has {_listed(names)}" if names else "it does not list its models"
    raise UsageError(
        f"cannot tell which model of {server.origin} to ask", why, "Name one with --server-model."
    )


def answer(
    server: Server, model: str, text: str, wanted: dict[str, Any], set_by_user: frozenset[str]
) -> Iterator[Piece]:
    """The answer to one message, piece by piece as it comes.

    A request that the server refuses for the name of a field is sent once more, with the name that
    the server asks for; or without a field that the user did not set.

    Args:
        server, model: whom to ask.
        text: the message.
        wanted: further fields of the request.
        set_by_user: those of them that the user set.

    Raises:
        NoAnswer: there is no answer, or it breaks off.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        **wanted,
    }
    while True:
        with _told(server), _response(server, "POST", CHAT, body) as response:
            if response.status == 200:
                yield from _pieces(response)
                return
            blamed = _blamed(response)
        changed = _changed(body, response.status, blamed, set_by_user)
        if changed is None:
            raise _refused(server, model, response, blamed)
        body = changed


def _pieces(response: HTTPResponse) -> Iterator[Piece]:
    kind = response.headers.get_content_type()
    return whole(response) if kind == "application/json" else streamed(response)


def _changed(
    body: dict[str, Any], status: int, blamed: str, set_by_user: frozenset[str]
) -> dict[str, Any] | None:
    """The request as the server wants it; None: it says nothing of that."""
    if status != 400:
        return None
    for old, new in OTHER_NAMES.items():
        if old in body and new in blamed:
            return {**{k: v for k, v in body.items() if k != old}, new: body[old]}
    for name in OPTIONAL:
        if name in body and name in blamed and name not in set_by_user:
            return {k: v for k, v in body.items() if k != name}
    return None


# --- the connection ---


@contextmanager
def _response(
    server: Server, method: str, path: str, body: dict[str, Any] | None = None
) -> Iterator[HTTPResponse]:
    connection = _connection(server)
    with ExitStack() as held:
        held.callback(connection.close)
        connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(SILENCE)
        held.enter_context(at_end(partial(_shut, connection.sock)))
        headers = {"Accept": "text/event-stream, application/json", "User-Agent": "longctx"}
        if server.key is not None:
            headers["Authorization"] = f"Bearer {server.key.value}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, f"{server.base}{path}", data, headers)
        yield held.enter_context(connection.getresponse())


def _shut(connected: socket.socket) -> None:
    """Ends a connection that another thread waits for."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _connection(server: Server) -> HTTPConnection:
    if server.scheme == "http":
        return HTTPConnection(server.host, server.port, timeout=CONNECT)
    context = ssl.create_default_context()
    proxy = urllib.request.getproxies().get("https")
    if not proxy or is_loopback(server.host) or urllib.request.proxy_bypass(server.host):
        return HTTPSConnection(server.host, server.port, timeout=CONNECT, context=context)
    at = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = HTTPSConnection(at.hostname or "", at.port or 80, timeout=CONNECT, context=context)
    connection.set_tunnel(server.host, server.port, _of_proxy(at.username, at.password))
    return connection


def _of_proxy(name: str | None, password: str | None) -> dict[str, str]:
    if name is None:
        return {}
    import base64

    login = f"{unquote(name)}:{unquote(password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _models(server: Server) -> list[str]:
    """The names of a server's models; none if it does not list them.

    Raises:
        NoAnswer: it cannot be reached, or wants a key.
    """
    with _told(server), _response(server, "GET", "/models") as response:
        if response.status in (401, 403):
            raise _refused(server, "", response, _blamed(response))
        if response.status != 200:
            return []
        data = response.read(LISTED)
    try:
        names = [one["id"] for one in json.loads(data)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str) and name and name.isprintable()]


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} others" if more > 0 else "")


# --- errors ---


@contextmanager
def _told(server: Server) -> Iterator[None]:
    """Turns what goes wrong with a connection into an error that says what to do."""
    try:
        yield
    except (Failed, Nonsense, OSError, HTTPException) as error:
        check()  # another thread may have ended it
        raise _error(server, *_why(error)) from error


def _why(error: Failed | Nonsense | OSError | HTTPException) -> tuple[str, str]:
    if isinstance(error, Failed):
        return f"it failed: {error}", LOOK
    if isinstance(error, Nonsense):
        why = f"what it answers cannot be read: {error}"
        return why, "Ask again, or correct --answer-with."
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there", CORRECT
    if isinstance(error, socket.gaierror):
        return "there is no such host", "Correct --answer-with."
    if isinstance(error, TimeoutError):
        return f"it is silent (after {CONNECT:.0f} s, or {SILENCE:.0f} s once connected)", LOOK
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "verify_message", "") or error.reason or reason(error)
        remedy = "Correct --answer-with, or name the certificate with SSL_CERT_FILE."
        return f"it cannot be trusted: {why}", remedy
    if isinstance(error, ConnectionError):
        return "the connection broke off", LOOK
    return reason(error), CORRECT


def _blamed(response: HTTPResponse) -> str:
    """What a server says of its refusal."""
    data = response.read(BLAMED)
    try:
        return said(json.loads(data))
    except (ValueError, RecursionError):
        return said(data.decode("utf-8", "replace")) if b"<" not in data[:200] else ""


def _refused(server: Server, model: str, response: HTTPResponse, blamed: str) -> NoAnswer:
    status = response.status
    own = f" ({status}: {blamed})" if blamed else f" ({status})"
    if status in (401, 403):
        if server.key is None:
            return _error(server, f"it wants a key{own}", f"Set {KEY} to the server's key.")
        return _error(server, f"it refuses the key of {server.key.variable}{own}", "Correct it.")
    if 300 <= status < 400:
        to = said(response.headers.get("Location", "")) or "elsewhere"
        why = f"it sends to {to} ({status}), and text goes only to the address that is named"
        return _error(server, why, "Name the address that is meant.")
    if status == 404:
        return _not_found(server, model, own)
    if status == 429:
        return _error(server, f"it has too much to do, or wants to be paid{own}", "Ask later.")
    if status >= 500:
        return _error(server, f"it failed{own}", LOOK)
    return _error(
        server, f"it refuses the request{own}", "Send less with --gather, or see the log."
    )


def _not_found(server: Server, model: str, own: str) -> NoAnswer:
    """The error for a path or a model that is not there."""
    try:
        names = _models(server)
    except NoAnswer:
        names = []
    if names and model not in names:
        remedy = f"It has {_listed(names)}: name one with --server-model."
        return _error(server, f"it has no model {model!r}{own}", remedy)
    remedy = "Correct --answer-with (most addresses end in /v1) or --server-model."
    return _error(server, f"it has nothing there{own}", remedy)


def _error(server: Server, why: str, remedy: str) -> NoAnswer:
    return NoAnswer(f"cannot get an answer from {server.url}", why, remedy)
