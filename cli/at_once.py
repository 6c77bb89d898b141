"""Ctrl-C while the program is still being imported: it ends at once, and says so in one line.

Nothing is begun by then. An exception would be lost in one of the imports, or leave it half done.
Imports almost nothing, for it comes before everything else.
"""

import os
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT  # exit code
AS_JSON = f'{{"schema_version": 1, "error": {{"code": {INTERRUPTED}, "message": "interrupted"}}}}\n'


def end_at_once(number: int, frame: object) -> None:
    """Ends the process: a handler of signals."""
    try:
        os.write(2, (AS_JSON if "--json" in sys.argv else "error: interrupted\n").encode())
    finally:
        os._exit(INTERRUPTED)


def expect() -> None:
    """Lets Ctrl-C end the process until a run begins, unless it is to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
