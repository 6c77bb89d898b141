"""Standard input that a question does not take: whether something waits there. Nothing is read."""

import os
import stat
import struct
import sys


def waits() -> bool:
    """Whether standard input is a pipe or a socket that holds data.

    A file is none: in `while read`, it is what the loop reads on from. Where the system cannot
    tell, as on Windows, the answer is no.
    """
    try:
        import fcntl
        import termios

        number = sys.stdin.fileno()
        kind = stat.S_IFMT(os.fstat(number).st_mode)
        if kind not in (stat.S_IFIFO, stat.S_IFSOCK):
            return False
        held = fcntl.ioctl(number, termios.FIONREAD, struct.pack("i", 0))
    except (ImportError, OSError, ValueError):  # closed, or no real file
        return False
    return struct.unpack("i", held)[0] > 0
