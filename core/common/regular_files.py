"""Opens regular files only, and reads no more than a given number of bytes.

Opening a pipe blocks until a writer opens it, opening a device may do anything, and reading either
may never end. So a path is checked before it is opened and again afterwards, since it may have been
swapped in between; opening never blocks. All errors are `OSError`s with a `strerror` that says why,
so callers that name the file in a message need not distinguish them.
"""

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

NO_FILE = "it is a pipe, a socket or a device"
# Opened by the user's shell for this process: `--questions <(command)`.
HANDED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
# Do not wait for a writer, nor take a controlling terminal; Windows has neither.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class NotRegular(OSError):
    """A path leads to something that is not a file: a pipe, a socket, a device."""

    def __init__(self, path: Path | str):
        super().__init__(errno.EINVAL, NO_FILE, str(path))


class TooLarge(OSError):
    """A file is larger than the limit."""

    def __init__(self, path: Path | str, most: int, size: int):
        held = f"{size:,} bytes" if size > most else f"more than {most:,} bytes"
        super().__init__(errno.EFBIG, f"it has {held}, and {most:,} are the most", str(path))


def open_regular(path: Path | str) -> BufferedReader:
    """Opens a file to read its bytes; never blocks.

    Args:
        path: a file, or a link to one.

    Raises:
        NotRegular: it is a pipe, a socket or a device; it was not opened, or not read.
        OSError: it is a folder, or cannot be opened.
        ValueError: the name is invalid for a file.
    """
    return open(path, "rb", opener=_opened)


def is_regular(path: Path | str) -> bool:
    """Whether a path leads to a file; opens nothing and raises nothing."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_regular(path: Path | str, most: int, handed: bool = False) -> bytes:
    """All bytes of a file.

    Args:
        path: a file, or a link to one.
        most: bytes that it may have; a larger one is not read.
        handed: also accept what the shell opened for this process, of any kind.

    Raises:
        TooLarge: it has more; reading one byte too many detects a growing file.
        OSError, ValueError: see `open_regular`.
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
    """All text of a file, with `\\n` for every line end.

    Raises:
        UnicodeDecodeError: it is in another encoding.
        OSError, ValueError: see `read_regular`.
    """
    text = read_regular(path, most, handed).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path | str, most: int) -> Any:
    """The parsed contents of a JSON file.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nested deeper than Python can parse.
        OSError: see `read_regular`.
    """
    return parsed_json(read_regular(path, most).decode("utf-8"))


def parsed_json(text: str | bytes) -> Any:
    """Parsed JSON; ValueError also if it is nested deeper than Python can parse."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deeply") from error


def _opened(path: str, flags: int) -> int:
    """The descriptor of a regular file, reset to blocking reads."""
    _require_regular(os.stat(path), path)
    number = os.open(path, flags | _AT_ONCE)
    try:
        _require_regular(os.fstat(number), path)
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(number, True)
    except BaseException:  # Ctrl-C too: nothing else would close the descriptor
        os.close(number)
        raise
    return number


def _require_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(path)
