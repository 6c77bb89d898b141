"""Why a Ray cluster is not there, in plain words, before Ray has tried for minutes."""

import socket
from importlib.util import find_spec

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.ingest.ray_connection import _not_connected, connected


@pytest.fixture
def nobody() -> int:
    """A port at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray")
def test_nobody_listens(nobody):
    for port in (nobody, 99999):
        address = f"127.0.0.1:{port}"
        with pytest.raises(UsageError, match=rf"{address}'.* `ray start") as raised:
            connected(address).__enter__()
        assert isinstance(raised.value.__cause__, ConnectionRefusedError | OverflowError)


@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray")
def test_the_cluster_of_this_host_has_ended(nobody, monkeypatch):
    """Ray finds where it was, and would try for ever."""
    address = f"127.0.0.1:{nobody}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("ray.init", lambda *given, **how: pytest.fail("Ray tries"))
    with pytest.raises(UsageError, match=rf"cluster 'auto': {address}: .* `ray start"):
        connected("auto").__enter__()


def test_a_cluster_that_wants_a_token():
    """As Ray 2.60 says it."""
    error = ConnectionError("Failed to connect to Ray cluster at 192.0.2.2:6379")
    error.__cause__ = RuntimeError("Last error: RPC error: InvalidAuthToken: missing or incorrect")
    told = _not_connected("host:6379", error)
    assert (told.what, told.exit_code) == ("cannot connect to the Ray cluster 'host:6379'", 2)
    assert "wants a token" in told.why
    assert "RAY_AUTH_MODE=token" in told.remedy
    error.__cause__ = RuntimeError("it is starting")
    assert "token" not in str(_not_connected("host:6379", error))
