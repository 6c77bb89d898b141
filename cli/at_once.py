"""Ctrl-C while the program is still importing: it ends at once, and says so in one line.

No work has begun by then. An exception could be lost in an import, or leave it half done. This
module imports almost nothing, since it runs before everything else.
"""

import os
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT  # exit code
AS_JSON = f'{{"schema_version": 1, "error": {{"code": {INTERRUPTED}, "message": "interrupted"}}}}\n'


def end_at_once(number: int, frame: object) -> None:
    """Ends the process; a signal handler."""
    try:
        os.write(2, (AS_JSON if "--json" in sys.argv else "error: interrupted\n").encode())
    finally:
        os._exit(INTERRUPTED)


def expect() -> None:
    """Lets Ctrl-C end the process until a run begins, unless SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
