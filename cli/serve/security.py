"""Who may ask: the name that a client calls the server by, the page it asks from, and its token.

A page of another site may send requests to a server on this machine, and by DNS rebinding (a name
of its own that turns into 127.0.0.1) it could read the answers. So the Host must be a name of ours,
and what a browser says of the page (Origin, Sec-Fetch-Site) must be that this page is ours.
"""

import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable

from longctx.cli.serve.errors import Refused
from longctx.cli.serve.options import LOOPBACK, Options

Headers = Iterable[tuple[bytes, bytes]]
FREE = ("/", "/health", "/favicon.ico")  # what anyone may have: nothing of a document is in it
FREE_FOLDER = "/static/"
ANYWHERE = ("", "0.0.0.0", "::")
# A Host header as RFC 9110, 7.2 has it: an IPv6 address in brackets or a name, and a port. No
# userinfo, and nothing after either.
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?")
LAST_PORT = 65535
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Of every response: it is what it says it is, is shown in no other page, and tells no other site.
ALWAYS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Rules:
    """Decides about a request by its headers.

    Args:
        options: the server's.
    """

    def __init__(self, options: Options):
        names = {*LOOPBACK, *options.hosts}
        if options.host in ANYWHERE:
            names.add(socket.gethostname())
        else:
            names.add(options.host)
        self._names = {_canonical(name.lower()) for name in names}
        self._anywhere = options.host in ANYWHERE
        self._token = options.token.encode()

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Lets a request pass.

        Args:
            method, path: of the request.
            headers: names in lower case, as ASGI has them.

        Raises:
            Refused: 400 without one Host, 401 without the token, 403 from elsewhere.
        """
        given: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            given.setdefault(name, []).append(value)
        host = self._host(given)
        self._require_own_page(method, path, host, given)
        if self._token and not self._is_free(method, path):
            self._require_token(given)

    def _host(self, given: dict[bytes, list[bytes]]) -> str:
        """The name that the client calls, with its port."""
        values = given.get(b"host", [])
        if len(values) != 1:
            raise Refused(400, "a request needs one Host header", "bad_host")
        host = values[0].decode("latin-1").strip().lower()
        name = _name_in(host)
        if name in self._names or (self._anywhere and _is_address(name)):
            return host
        raise Refused(
            403,
            f"this server is not called {name[:200]!r}; "
            "longctx serve --allow-host NAME lets it be called so",
            "wrong_host",
        )

    def _require_own_page(
        self, method: str, path: str, host: str, given: dict[bytes, list[bytes]]
    ) -> None:
        """Refuses what a page of another site sends; what is no browser sends neither header."""
        for origin in given.get(b"origin", []):
            _, marked, name = origin.decode("latin-1").strip().lower().partition("://")
            if not marked or name != host:
                raise Refused(403, "requests from other pages are refused", "wrong_origin")
        for site in given.get(b"sec-fetch-site", []):
            opened = method == "GET" and path == "/"
            opened = opened and given.get(b"sec-fetch-mode") == [b"navigate"]
            if site not in (b"same-origin", b"none") and not opened:
                raise Refused(403, "requests from other pages are refused", "wrong_origin")

    def _require_token(self, given: dict[bytes, list[bytes]]) -> None:
        values = given.get(b"authorization", [])
        kind, _, shown = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        # Compared in constant time: how much of a guess is right must not show.
        if kind.lower() != b"bearer" or not hmac.compare_digest(shown.strip(), self._token):
            raise Refused(
                401,
                "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _is_free(self, method: str, path: str) -> bool:
        if method not in ("GET", "HEAD"):
            return False
        return path in FREE or path.startswith(FREE_FOLDER)


def _name_in(host: str) -> str:
    """The name or address of a Host header in lower case: `[::1]:80` is `::1`.

    Raises:
        Refused: 400, it is no name with a port.
    """
    parts = HOST.fullmatch(host)
    address, name, port = parts.groups() if parts else ("", "", "")
    is_name = bool(name) or (":" in (address or "") and _is_address(address))
    if not is_name or int(port or 0) > LAST_PORT:
        message = f"the Host header {host[:200]!r} is not NAME, NAME:PORT or [IPV6]:PORT"
        raise Refused(400, message, "bad_host")
    return _canonical(name or address)


def _canonical(name: str) -> str:
    """A name in lower case without its last dot; an address as it is written shortest."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.removesuffix(".")


def _is_address(name: str) -> bool:
    """Whether it is an address and no name, which alone can be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
