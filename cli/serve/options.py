"""What `longctx serve` was told: values only."""

from dataclasses import dataclass, field
from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MIB = 1 << 20
BODY = 1 * MIB  # bytes of a request in JSON
UPLOAD = 256 * MIB  # bytes of a file that is sent
UPLOADS = 1024 * MIB  # bytes of all of them that are sent or wait at once


@dataclass(frozen=True)
class Options:
    """How the server serves.

    Attributes:
        host: the address that it listens at.
        token: what a client must show; empty: nothing.
        hosts: further names by which clients may call it.
        waiting: requests that may wait for the model.
        max_new_tokens: the longest answer, whatever a client asks for.
        max_docs: documents that a question to all of them is encoded for.
        body: bytes of a request in JSON.
        upload: bytes of a file that is sent to be read.
        uploads: bytes of all such files at once.
        asked: further arguments of every question, such as the gather source.
    """

    host: str = "127.0.0.1"
    token: str = ""
    hosts: tuple[str, ...] = ()
    waiting: int = 64
    max_new_tokens: int = 1024
    max_docs: int = 16
    body: int = BODY
    upload: int = UPLOAD
    uploads: int = UPLOADS
    asked: dict[str, Any] = field(default_factory=dict)
