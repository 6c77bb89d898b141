"""Clients on raw sockets, and waiting for what a server does about them."""

import socket
import struct
import time
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds, at most a minute."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 60
        time.sleep(0.01)


def connected(port: int, *parts: bytes) -> socket.socket:
    """A connection to this machine over which some bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(b"".join(parts))
    return connection


def reset_at_close(connection: socket.socket) -> None:
    """Has the end of a connection be a reset, as that of a client that crashed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
