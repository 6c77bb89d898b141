"""Frames between a command and its parsing process: a JSON object and bytes.

What arrives is never more than data, and never larger than the limits here, whichever side sends
it. Knows nothing of the contents.
"""

import json
import struct
from typing import IO, Any

TOLD = 8 << 20  # bytes of a JSON object
DATA = 40 << 20  # bytes beside it
_HEAD = struct.Struct(">II")


class Broken(Exception):
    """What arrived is not a frame."""


def write(file: IO[bytes], told: dict[str, Any], data: bytes = b"") -> None:
    """Sends a frame."""
    head = json.dumps(told).encode()
    file.write(_HEAD.pack(len(head), len(data)) + head)
    file.write(data)
    file.flush()


def read(file: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """The next frame.

    Raises:
        EOFError: there is no more.
        Broken: it is malformed or too large.
    """
    head, size = _HEAD.unpack(_exactly(file, _HEAD.size))
    if head > TOLD or size > DATA:
        raise Broken("a frame is too large")
    try:
        told = json.loads(_exactly(file, head))
    except (ValueError, RecursionError) as error:
        raise Broken("a frame is no JSON") from error
    if not isinstance(told, dict):
        raise Broken("a frame is no object")
    return told, _exactly(file, size)


def _exactly(file: IO[bytes], size: int) -> bytes:
    """Exactly `size` bytes; a pipe may deliver them in parts."""
    pieces = []
    while size:
        piece = file.read(size)
        if not piece:
            raise EOFError("the other side has ended")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
