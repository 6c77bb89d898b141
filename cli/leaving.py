"""The end of the process: without taking the interpreter and a million objects apart, up to 1.2 s.

When a command returns, the store and every other file that counts is closed, and its threads have
ended. So what is left to do is what was registered for the end, and to hand on the exit code. Only
the command line ends so: whoever calls the program as a library goes on.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from longctx.core.common.errors import LongctxError


@contextmanager
def at_once() -> Iterator[None]:
    """Ends the process where the program inside asks Python to end; other errors go on."""
    try:
        yield
    except SystemExit as end:
        code = 0 if end.code is None else end.code
        if not isinstance(code, int):  # a message, which Python would print
            return sys.exit(code)
        _flush()
        atexit._run_exitfuncs()  # temporary folders and child processes end there, and log files
        _flush()
        os._exit(code & 0xFF)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, LongctxError):  # reported where it was written
            stream.flush()
