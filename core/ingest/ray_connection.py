"""A Ray cluster, to which this process belongs for a while; and in plain words why it does not."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from longctx.core.common.distribution import install_command
from longctx.core.common.errors import UsageError

AUTO = "auto"  # the address of the cluster that this host belongs to
LOCAL = "local"  # the address of a cluster that is started here, and ends with the command
_OBJECTS = 128 << 20  # bytes of memory for Ray's objects; ours are a few hundred bytes each
_ANSWERS = 10.0  # seconds in which an address answers; Ray itself would try for minutes
_START = "Start one with `ray start --head`, or give its address; `local` starts one here."


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster until the context ends.

    Args:
        address: of the cluster: `auto` for the one that this host belongs to, host:port, or `local`
            for one that is started on this machine.

    Raises:
        UsageError: it is not installed, there is no such cluster, or it wants a token.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # it prints to standard output
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent unasked
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as error:
        raise UsageError(
            "--ray needs Ray, which is not installed", "", f"Run: {install_command('ray')}."
        ) from error
    how: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        how |= {"include_dashboard": False, "object_store_memory": _OBJECTS}
    try:
        _require_answer(_found(address))
        with _own_handler():
            ray.init(address, **how)
    except (OSError, OverflowError, RuntimeError, ValueError, RayError) as error:
        raise _not_connected(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _own_handler() -> Iterator[None]:
    """`kill` goes on to save what was read: Ray's handler would end the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # in others, Ray sets none
            signal.signal(signal.SIGTERM, before)


def _found(address: str) -> str:
    """Where Ray looks for a cluster: for `auto`, what it noted when one last began here."""
    if address != AUTO:
        return address
    try:
        from ray._private.services import get_ray_address_from_environment
    except ImportError:  # it is Ray's own affair, and may be elsewhere in another version
        return address
    return get_ray_address_from_environment(address, None) or address


def _require_answer(address: str) -> None:
    """OSError where nobody listens at host:port; OverflowError: no port has such a number."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWERS).close()
        except OSError as error:
            raise type(error)(f"{address}: {error.strerror or error}") from error


def _not_connected(address: str, error: BaseException) -> UsageError:
    """What to say of an error, or of one from which it came."""
    what, why = f"cannot connect to the Ray cluster '{address}'", str(error).partition("\n")[0]
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(cause):
            # Ray sends the user's token to a cluster that it finds itself, not to an address.
            remedy = "Set RAY_AUTH_MODE=token; the token is that of ~/.ray/auth_token, "
            remedy += "RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN."
            return UsageError(what, "it wants a token, and got none or another one", remedy)
        cause = cause.__cause__
    return UsageError(what, why, _START)
