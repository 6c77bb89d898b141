"""HTTP/1.1 over raw sockets: requests that break it, heads, and connections that stand still."""

import json
import socket

import pytest
from raw_clients import connected, until

from longctx.cli.serve import listening, protocol
from longctx.cli.serve.security import ALWAYS

POST = b"POST /v1/find HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SECOND = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n"


def refused(got: bytes, status: int, code: str, body: bool = True) -> None:
    """Asserts that all that came is one refusal with the headers of every response."""
    head, _, content = got.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    assert first.startswith(f"HTTP/1.1 {status} "), got
    assert got.count(b"HTTP/1.1 ") == 1
    given = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert {name: given.get(name.lower()) for name in ALWAYS} == ALWAYS
    assert given["connection"] == "close"
    assert "server" not in given
    assert int(given["content-length"]) == len(content) or not body
    if body:
        assert json.loads(content)["error"]["code"] == code
    else:
        assert content == b""


@pytest.mark.parametrize(
    "head",
    [
        POST + b"Content-Length: 4\r\n" + CHUNKS,
        POST + CHUNKS + b"content-length: 0\r\n",
        POST.replace(b"POST", b"GET") + CHUNKS + b"Content-Length: 5\r\n",
        POST.replace(b"1.1", b"1.0") + CHUNKS,
        POST + b"Content-Length: 4\r\nContent-Length: 5\r\n",
        POST + b"Content-Length: -1\r\n",
        POST + b"Content-Length : 4\r\n",
        POST + b"Host: evil.example\r\n",
        POST + b"\0: x\r\n",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n",
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(served, head):
    """Nothing behind it is a request: a proxy may have read other ones out of these bytes."""
    refused(served.exchanged(head + b"\r\n0\r\n\r\n" + SECOND), 400, "bad_request")


def test_a_head_request_gets_no_body(served):
    head = POST.replace(b"POST", b"HEAD") + CHUNKS + b"Content-Length: 1\r\n\r\n"
    refused(served.exchanged(head), 400, "", body=False)


@pytest.mark.parametrize("name", [b"gzip", b"gzip, chunked", b"identity"])
def test_codings_that_are_not_read(served, name):
    got = served.exchanged(POST + b"Transfer-Encoding: " + name + b"\r\n\r\n" + SECOND)
    refused(got, 501, "not_implemented")


def test_a_body_that_breaks_the_protocol(served):
    got = served.exchanged(POST + CHUNKS + b"\r\n", b"2\r\n{}\r\n", b"no number\r\n" + SECOND)
    refused(got, 400, "bad_request")


def head_of(size: int) -> bytes:
    """A request whose head has so many bytes."""
    first, last = (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: ",
        b"\r\n\r\n",
    )
    return first + b"x" * (size - len(first) - len(last)) + last


@pytest.mark.parametrize("parts", [1, 3])
def test_a_head_has_a_largest_size(served, parts):
    """As documented, whether its bytes come together or one after the other."""
    for size in (protocol.HEAD, protocol.HEAD + 1, 5 * protocol.HEAD):
        head, step = head_of(size), -(-size // parts)
        got = served.exchanged(*(head[at : at + step] for at in range(0, size, step)))
        if size == protocol.HEAD:
            assert got.startswith(b"HTTP/1.1 200 ")
        else:
            refused(got, 431, "head_too_large")


def test_a_client_that_still_sends_can_read_why_it_is_refused(served):
    """Twice: by the parser, and by a route."""
    many = b"x" * (8 << 20)
    refused(served.exchanged(head_of(100_000)[:-4] + many), 431, "head_too_large")
    length = b"Content-Length: %d\r\n\r\n" % len(many)
    refused(served.exchanged(POST + length + many), 413, "too_large")


def test_connections_beyond_the_limit(serve, monkeypatch):
    monkeypatch.setattr(listening, "BESIDE", 1)
    served = serve(waiting=0)
    with connected(served.port, SECOND) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        got = served.exchanged(SECOND * 2)
        refused(got, 503, "too_many_connections")
        assert b"\r\nretry-after: " in got
        connection.sendall(SECOND)
        assert connection.recv(65536)
    until(lambda: not served.server.server_state.connections)
    assert served.exchanged(head_of(200)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_who_does_not_finish_a_head_is_cut_off(served, monkeypatch, begun):
    monkeypatch.setattr(protocol, "HEADERS_S", 0.2)
    assert served.exchanged(begun) == b""
    served.http.get("/health").raise_for_status()


def test_a_second_head_has_to_be_finished_too(served, monkeypatch):
    monkeypatch.setattr(protocol, "HEADERS_S", 0.2)
    with connected(served.port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = b""
        while not got.endswith(b'{"status":"ok"}'):  # head and body may come one after the other
            got += connection.recv(65536)
        assert got.startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert connection.recv(65536) == b""


def test_a_client_that_takes_nothing_is_cut_off(served, monkeypatch):
    """It asks again and again, and reads no answer, until the server waits for it."""
    monkeypatch.setattr(protocol, "STALLED_S", 0.2)
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        connection.sendall(asked * 200_000)
    served.http.get("/health").raise_for_status()
