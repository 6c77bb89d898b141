"""A server that answers in place of a model of ours: its address, the model there, and the key.

Opens no connection, and imports nothing heavy. Text goes unencrypted to this computer alone, unless
the user says otherwise; a key goes only where its variable says that it belongs.
"""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from longctx.core.common.errors import UsageError
from longctx.core.engine.choice import Setup

KEY = "LONGCTX_SERVER_KEY"  # goes to whichever server is named
OPENAI_KEY, OPENAI_HOST = "OPENAI_API_KEY", "api.openai.com"  # goes there, and to:
OPENAI_BASE = "OPENAI_BASE_URL"
PLAIN = "LONGCTX_PLAIN_HTTP"
CHAT = "/chat/completions"
EXAMPLE = "Write an address such as http://localhost:11434/v1."
_ADDRESS = re.compile(r"[!-~]+")
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Key:
    """A key, and the environment variable that it comes from."""

    variable: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class Server:
    """Where an answer comes from.

    Attributes:
        scheme: http or https.
        host, port: where to connect.
        base: the path that ends before `/chat/completions`.
        model: as the server names it; None: the only one that it has.
        key: sent with each request; None: none is.
    """

    scheme: str
    host: str
    port: int
    base: str
    model: str | None = None
    key: Key | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != usual else "")

    @property
    def url(self) -> str:
        """The address that passages are sent to."""
        return f"{self.origin}{self.base}{CHAT}"


def server_of(setup: Setup) -> Server | None:
    """The server that answers, as a setup says; None: a model here does.

    Raises:
        UsageError: as `named`; or a model here is to answer as well.
    """
    if setup.answer_with is not None and (setup.answer_model or setup.answer_profile):
        what = "cannot take both --answer-model and --answer-with"
        raise UsageError(what, "one model answers", "Leave one out.")
    if setup.answer_with is not None and setup.decode is not None:
        what = "cannot take both --decode and --answer-with"
        raise UsageError(what, "another server decodes", "Leave one out.")
    return named(setup.answer_with, setup.server_model)


def named(address: str | None, model: str | None) -> Server | None:
    """The server that a user names; None: none is named.

    Args:
        address: http or https, with `/v1` or another path before `/chat/completions`, that itself,
            or without a path, which means `/v1`.
        model: as the server names it; None: the only one that it has.

    Raises:
        UsageError: the address cannot be used, or is missing; or the key cannot be sent.
    """
    if address is None:
        if model is not None:
            what = f"cannot ask a server's model {model!r}"
            raise UsageError(what, "no server is named", "Give --answer-with URL too.")
        return None
    parts, port = _split(address)
    host, base = parts.hostname or "", parts.path.rstrip("/").removesuffix(CHAT) or "/v1"
    if parts.scheme == "http" and not (is_loopback(host) or os.environ.get(PLAIN) == "1"):
        raise UsageError(
            f"cannot send text to '{address}'",
            "http is not encrypted, and this is another computer",
            f"Use https, or a tunnel (ssh -L), or set {PLAIN}=1 to send it as it is.",
        )
    if model is not None and not (model.strip() and model.isprintable()):
        raise UsageError(f"cannot ask for the model {model!r}", "", "Name one of the server's.")
    return Server(parts.scheme, host, port, base, model, _key(host, port))


def is_loopback(host: str) -> bool:
    """Whether a host is this computer."""
    from ipaddress import ip_address  # which nobody else here needs

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _split(address: str) -> tuple[SplitResult, int]:
    """An address in its parts, and the port.

    Raises:
        UsageError: it cannot be used.
    """
    what = f"cannot use the address {_shown(address)!r}"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise UsageError(what, str(error), EXAMPLE) from error
    if "@" in parts.netloc:
        why = "it has a name or password in it"
        raise UsageError(what, why, f"Leave them out; a key stands in {KEY}.")
    known = parts.scheme in ("http", "https") and parts.hostname and _ADDRESS.fullmatch(address)
    if not known or parts.query or parts.fragment:
        raise UsageError(what, "it is no plain http or https address", EXAMPLE)
    return parts, port or {"http": 80, "https": 443}[parts.scheme]


def _shown(address: str) -> str:
    """An address without what may be a password."""
    before, at, behind = address.rpartition("@")
    return f"{before.partition('//')[0]}//...@{behind}" if at else address


def _key(host: str, port: int) -> Key | None:
    """The key that belongs to a host, if there is one.

    Raises:
        UsageError: it has characters that no header can have.
    """
    for variable in (KEY, OPENAI_KEY):
        value = os.environ.get(variable, "").strip()
        if value and (variable == KEY or _is_of_openai(host, port)):
            if not _KEY.fullmatch(value):
                why = "it has characters that no key has"
                raise UsageError(f"cannot send the key of {variable}", why, "Correct it.")
            return Key(variable, value)
    return None


def _is_of_openai(host: str, port: int) -> bool:
    """Whether OpenAI's own variables are about a host."""
    if host == OPENAI_HOST:
        return True
    try:
        named = urlsplit(os.environ.get(OPENAI_BASE, ""))
        usual = {"http": 80, "https": 443}.get(named.scheme)
        return named.hostname == host and (named.port or usual) == port
    except ValueError:
        return False
