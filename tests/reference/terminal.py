"""A program at a terminal of its own: what a person types, and what they see."""

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from preloaded import Process

PATIENCE = 200  # seconds until a text must have appeared
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r")


class Terminal:
    """The other side of the terminal.

    Attributes:
        process: the program.
        shown: all that it has shown so far, without colours.
    """

    def __init__(self, process: Process, number: int):
        self.process, self._number = process, number
        self.shown, self._seen, self._raw = "", 0, b""

    def types(self, text: str) -> None:
        """Types a text."""
        os.write(self._number, text.encode())

    def line(self, text: str) -> str:
        """Types a line at the prompt; gives what is shown until the next prompt."""
        self.types(f"{text}\r")
        return self.until(r"\n\? $")

    def until(self, pattern: str) -> str:
        """What is shown from where the last call ended until a pattern fits its end."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.shown[self._seen :])):
            if not self._read(end):
                pytest.fail(f"no {pattern!r} in {self.shown[self._seen :]!r}")
        told = self.shown[self._seen : self._seen + found.end()]
        self._seen += found.end()
        self._await_rest(end)
        return told

    def _await_rest(self, end: float) -> None:
        """Waits until the program does: readline misses Ctrl-C between its prompt and its wait."""
        state = Path(f"/proc/{self.process.pid}/stat")
        while time.monotonic() < end and state.exists():
            if state.read_text().rpartition(")")[2].split()[0] != "R":
                return
            time.sleep(0.001)

    def ends(self) -> int:
        """Waits for the program's end; its exit code."""
        while self._read(time.monotonic() + PATIENCE):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, end: float) -> bool:
        """Reads what there is; false at the end, or where nothing comes."""
        if not select.select([self._number], [], [], max(0, end - time.monotonic()))[0]:
            return False
        data = b""
        with suppress(OSError):  # how Linux says that nobody has the terminal any more
            data = os.read(self._number, 1 << 16)
        self._raw += data
        self.shown = _ESCAPES.sub("", self._raw.decode("utf-8", "replace"))
        return bool(data)


@contextmanager
def at_terminal(*args: object, stdout: Any = None, term: str = "dumb") -> Iterator[Terminal]:
    """A command of ours, with a terminal for what is not given.

    Args:
        *args: of the command line.
        stdout: where standard output goes instead.
        term: the kind of the terminal; a dumb one gets no bars.
    """
    ours, theirs = os.openpty()
    streams = {"stdin": theirs, "stdout": stdout or theirs, "stderr": theirs}
    env = {**os.environ, "TERM": term, "OMP_NUM_THREADS": "1"}
    process = Process([*map(str, args)], **streams, env=env, terminal=True)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
