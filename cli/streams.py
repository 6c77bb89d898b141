"""Standard input, output and error as this program needs them, however it was started.

A program can be started with any of the three closed. Python then has no stream, and the next file
opened gets its number: a note would be written into a document. So the null device replaces closed
streams before anything else is opened. Imports nothing of ours but errors.
"""

import io
import os
import sys

from longctx.core.common.errors import LongctxError

NAMES = ("stdin", "stdout", "stderr")  # by their numbers


class Told(io.TextIOWrapper):
    """Standard error: a message that cannot be written, as on a full disk, stops no work."""

    def write(self, text: str) -> int:
        """Writes what can be written."""
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Flushes what can be flushed."""
        try:
            super().flush()
        except OSError:
            return


class Results(io.TextIOWrapper):
    """Standard output: a result that cannot be written is an error.

    Raises:
        BrokenPipeError: nobody reads it any more.
        LongctxError: it cannot be written for another reason.
    """

    def write(self, text: str) -> int:
        """Writes a part of a result."""
        try:
            return super().write(text)
        except OSError as error:
            raise _unwritable(error) from error

    def flush(self) -> None:
        """Flushes what was written."""
        try:
            super().flush()
        except OSError as error:
            raise _unwritable(error) from error


def _unwritable(error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return error
    why = error.strerror or str(error)
    return LongctxError("cannot write standard output", why, "Send it elsewhere, or make room.")


def fill_gaps() -> None:
    """Opens the null device for each of descriptors 0, 1 and 2 that is closed.

    One that was closed may have been given to another file since: then the stream has the null
    device under another number.
    """
    filled = set()
    while (number := os.open(os.devnull, os.O_RDWR)) < len(NAMES):
        os.set_inheritable(number, True)  # as the others are
        filled.add(number)
    os.close(number)
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            mode, null = "w" if number else "r", number if number in filled else os.devnull
            setattr(sys, name, open(null, mode, encoding="utf-8", closefd=null is os.devnull))  # noqa: SIM115 (it stays)


def stand_in() -> None:
    """Makes standard output and error `Results` and `Told`."""
    for name, kind in (("stdout", Results), ("stderr", Told)):
        before = getattr(sys, name)
        before.flush()
        kept = {
            "encoding": before.encoding,
            "line_buffering": before.line_buffering,
            "write_through": before.write_through,
        }
        # A character that the terminal's encoding lacks is shown as "?", not as a traceback.
        after = kind(before.detach(), errors="replace", **kept)
        setattr(sys, name, after)
        setattr(sys, f"__{name}__", after)
