"""How much may be sent, how long it may take, and clients that leave; over real sockets."""

import re

import pytest
from raw_clients import connected, reset_at_close, until

from longctx.cli.serve import guard
from longctx.cli.serve.app import ROUTES

FIND = {"query": "marmalade"}
POSTED = [route.path for route in ROUTES if "POST" in route.methods]


def test_a_request_has_a_largest_size(serve):
    served = serve(body=1000)
    large = {"query": "x" * 1000}
    response = served.http.post("/v1/find", json=large)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")

    def parts():
        for _ in range(100):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    response = served.http.post("/v1/find", content=parts(), headers=headers)
    assert response.status_code == 413
    assert served.http.post("/v1/find", json=FIND).status_code == 200


def test_who_does_not_finish_a_body_is_told(served, monkeypatch):
    monkeypatch.setattr(guard, "SLOW", 0.2)
    head = b"POST /v1/find HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    got = served.exchanged(head + b"Content-Length: 100\r\n\r\n{")
    assert got.startswith(b"HTTP/1.1 408 ")
    assert b"too long to arrive" in got


def test_a_post_without_a_body_is_answered(served):
    head = b"POST /v1/find HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    got = served.exchanged(head + b"Connection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")


def test_what_is_not_read_ends_the_connection(served):
    """The rest of the body would be no request, and waiting for it would have no end."""
    head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    got = served.exchanged(head + b"{")
    assert got.startswith(b"HTTP/1.1 404 ")
    assert b"\r\nconnection: close\r\n" in got.lower()


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_client_that_leaves_while_it_sends_is_no_failure(serve, caplog, framing, resets):
    served = serve()
    assert POSTED
    for path in POSTED:
        head = b"POST %s?name=a.txt HTTP/1.1\r\nHost: localhost\r\n" % path.encode()
        head += b"Content-Type: application/json\r\n" + framing + b"\r\n\r\n"
        with connected(served.port, head, b"1\r\n{\r\n") as connection:
            until(lambda: served.server.server_state.tasks)  # it is being answered
            if resets:
                reset_at_close(connection)
        left(served, caplog)


@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_leaves_its_answer_is_no_failure(serve, caplog, resets):
    served = serve()
    body = b'{"model": "longctx/notes", "input": "Who?", "stream": true, "temperature": 5.0, '
    body += b'"seed": 1, "max_output_tokens": 1000}'
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    with connected(served.port, head, length, body) as connection:
        while b"delta" not in connection.recv(65536):
            pass
        if resets:
            reset_at_close(connection)
    left(served, caplog)
    assert not served.app.state.work.running


def left(served, caplog) -> None:
    """Waits until nothing is done for a client any more, and asserts that nothing went wrong."""
    until(lambda: not served.server.server_state.tasks and not served.app.state.work.running)
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
    assert not re.findall(r'status="[45]', served.http.get("/metrics").text)
