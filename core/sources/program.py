"""The entry point of the parsing process, which isolates files that are not plain text.

`parser.py` starts it with pipes as standard input and output; it ends when they close. It limits
its own memory, processor time and open files where the system can; elapsed time is watched from
outside. Whatever libraries print is discarded.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO

from longctx.core.sources import wire
from longctx.core.sources.limits import OPEN_FILES
from longctx.core.sources.parsing import OutOfMemory, Parsing

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

EVERY = 0.25  # seconds between reports of progress
SPARE = 5  # extra seconds of processor time beyond the parent's limit
WORN = 256 << 20  # bytes in use while idle, above which a new process is started
ADDRESSES = 1 << 30  # address space beyond the memory limit: files, libraries, reserved memory


def main() -> None:
    """Answers requests until none are left."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    coming, going = _pipes()
    _bound_once()
    requests: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()
    threading.Thread(target=_receive, args=(coming, requests), daemon=True).start()
    bounds = _Bounds()
    telling = _Telling(going, bounds)
    parsing = Parsing(telling.add)
    while True:
        told, data = requests.get()
        bounds.set(told["memory"], told["seconds"])
        telling.done = 0
        try:
            answer = parsing.answer(told, data)
        except OutOfMemory:
            answer = {"memory": True}, b""
        if (told["do"] == "close" or answer[0].get("over")) and _is_worn():
            answer[0]["worn"] = True
        wire.write(going, *answer)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output, moved to where no library finds them."""
    pipes = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    os.close(nowhere)
    return pipes


def _receive(coming: BinaryIO, requests: SimpleQueue) -> None:
    """Forwards requests; when they end, exits at once, whatever is in progress."""
    with suppress(EOFError, OSError, wire.Broken):
        while True:
            requests.put(wire.read(coming))
    os._exit(0)


class _Telling:
    """Reports progress to the parent now and then, with the bytes unpacked."""

    def __init__(self, going: BinaryIO, bounds: "_Bounds"):
        self._going, self._bounds, self._next = going, bounds, 0.0
        self.done = 0  # bytes, of the current request

    def add(self, size: int) -> None:
        """Counts bytes that were unpacked or converted."""
        self.done += size
        if (now := time.monotonic()) >= self._next:
            self._next = now + EVERY
            self._bounds.allow()
            wire.write(self._going, {"busy": self.done})


class _Bounds:
    """The limits of this process; without effect if the system has none."""

    def __init__(self) -> None:
        self._memory, self._seconds = 0, 0.0

    def set(self, memory: int, seconds: float) -> None:
        """Limits memory, and processor time from now on."""
        if memory != self._memory:
            self._memory = memory
            _bound("RLIMIT_DATA", memory)  # on Linux, all private writable memory
            _bound("RLIMIT_AS", memory + ADDRESSES)
        self._seconds = seconds
        self.allow()

    def allow(self) -> None:
        """Restarts the processor time limit from now."""
        if resource:
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            _bound("RLIMIT_CPU", int(used + self._seconds + SPARE))


def _is_worn() -> bool:
    """Whether freed memory was not returned to the system, so the next file would lack it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[5])  # of private memory
        return pages * os.sysconf("SC_PAGE_SIZE") > WORN
    except (OSError, ValueError, IndexError):
        return False


def _bound_once() -> None:
    _bound("RLIMIT_NOFILE", OPEN_FILES)
    _bound("RLIMIT_CORE", 0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, Linux ends this process first


def _bound(name: str, most: int) -> None:
    """Sets a limit as far as the system allows; it can be changed later."""
    number = getattr(resource, name, None)
    if resource is None or number is None:
        return
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(number)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
