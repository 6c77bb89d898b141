"""Opens regular files only, and reads no more than a given number of bytes.

Opening a pipe waits until somebody writes to it, opening a device may do anything, and reading
either may have no end. So what a path leads to is looked at before it is opened and again
afterwards; in between it may have been exchanged, and opening waits for nothing. All errors are of
`OSError` with a `strerror` that says why, so whoever names the file in a message need not tell them
apart.
"""

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

NO_FILE = "it is a pipe, a socket or a device"
# What the user's shell has opened for this process: `--questions <(command)`.
HANDED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
# Opening waits for no writer and makes no terminal the process's own; Windows has neither.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class NotRegular(OSError):
    """A path leads to what is no file: a pipe, a socket, a device."""

    def __init__(self, path: Path | str):
        super().__init__(errno.EINVAL, NO_FILE, str(path))


class TooLarge(OSError):
    """A file has more bytes than are read of it."""

    def __init__(self, path: Path | str, most: int, size: int):
        held = f"{size:,} bytes" if size > most else f"more than {most:,} bytes"
        super().__init__(errno.EFBIG, f"it has {held}, and {most:,} are the most", str(path))


def open_regular(path: Path | str) -> BufferedReader:
    """Opens a file to read its bytes; never waits for anybody.

    Args:
        path: a file, or a link to one.

    Raises:
        NotRegular: it is a pipe, a socket or a device; it was not opened, or not read.
        OSError: it is a folder, or cannot be opened.
        ValueError: no file can have this name.
    """
    return open(path, "rb", opener=_opened)


def is_regular(path: Path | str) -> bool:
    """Whether a path leads to a file; nothing is opened, and no error raised."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_regular(path: Path | str, most: int, handed: bool = False) -> bytes:
    """All bytes of a file.

    Args:
        path: a file, or a link to one.
        most: bytes that it may have; a larger one is not read.
        handed: also what the shell has opened for this process, of any kind.

    Raises:
        TooLarge: it has more; a file that grows is known by reading one byte too many.
        OSError, ValueError: as `open_regular`.
    """
    is_stream = handed and str(path).startswith(HANDED)
    with open(path, "rb") if is_stream else open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise TooLarge(path, most, size)
        data = file.read(most + 1)
    if len(data) > most:
        raise TooLarge(path, most, size)
    return data


def read_text(
    path: Path | str,
    most: int,
    encoding: str = "utf-8",
    errors: str = "strict",
    handed: bool = False,
) -> str:
    """All text of a file, every line end as `\\n`.

    Raises:
        UnicodeDecodeError: it is in another encoding.
        OSError, ValueError: as `read_regular`.
    """
    text = read_regular(path, most, handed).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path | str, most: int) -> Any:
    """What a file of JSON says.

    Raises:
        ValueError: it is none, no UTF-8, or nested deeper than Python follows.
        OSError: as `read_regular`.
    """
    return parsed_json(read_regular(path, most).decode("utf-8"))


def parsed_json(text: str | bytes) -> Any:
    """What a text of JSON says; ValueError also where it is nested deeper than Python follows."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deeply") from error


def _opened(path: str, flags: int) -> int:
    """The descriptor of a regular file, which reads as any other."""
    _require_regular(os.stat(path), path)
    number = os.open(path, flags | _AT_ONCE)
    try:
        _require_regular(os.fstat(number), path)
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(number, True)
    except BaseException:  # Ctrl-C too: nobody else has the descriptor
        os.close(number)
        raise
    return number


def _require_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(path)
