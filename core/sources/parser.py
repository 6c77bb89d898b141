"""The parsing process as a command sees it: started on demand, restarted after it ends.

One runs at a time. If a request exceeds its time or memory limit, the process is ended and the
request fails with an error that says so; the next request starts a new process. Answers are
bounded (`wire.py`), and only ever data.
"""

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import IO, Any, Protocol

from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.common.units import show_bytes
from longctx.core.sources import wire
from longctx.core.sources.detect import NotText
from longctx.core.sources.limits import MEMORY, PER_SECOND, SECONDS, UNPACKED, TooMuch
from longctx.core.sources.rules import Rules

BEGIN = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from longctx.core.sources.program import main
main()
"""
LOOK = 0.1  # seconds between checks of the time limit
KINDS = {kind.__name__: kind for kind in (UnreadableInput, NotText, TooMuch)}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_log = logging.getLogger(__name__)
_numbers = count()


class GivenUp(UnreadableInput):
    """A file exceeded a limit, or crashed the parsing process."""


@dataclass
class Allowed:
    """The limits for parsing one file or member, and the time that it took.

    Args:
        name: of the file or member.
        memory: in bytes.
        seconds: the base; one more for every `PER_SECOND` bytes.
        size: bytes of the file on disk.
        most: bytes of output, at most.

    Attributes:
        worked: bytes that were unpacked or output.
        spent: in seconds.
    """

    name: str
    memory: int
    seconds: int
    size: int
    most: int
    worked: int = 0
    spent: float = 0.0

    @classmethod
    def by(cls, rules: Rules, name: str, size: int) -> "Allowed":
        """The limits that the user set."""
        bounds = rules.memory or MEMORY, rules.seconds or SECONDS, size
        return cls(name, *bounds, rules.max_unpacked or UNPACKED)

    @property
    def left(self) -> float:
        """The seconds left."""
        return self.seconds + (self.size + min(self.worked, self.most)) / PER_SECOND - self.spent

    def too_long(self) -> GivenUp:
        """The error for taking too much time."""
        return GivenUp(
            f"cannot read '{self.name}'",
            f"parsing it took over {self.seconds:,} seconds",
            "If that is right, allow more: --max-parser-time.",
        )

    def too_large(self) -> GivenUp:
        """The error for taking too much memory."""
        return GivenUp(
            f"cannot read '{self.name}'",
            f"parsing it took over {show_bytes(self.memory)} of memory",
            "If that is right, allow more: --max-parser-memory.",
        )

    def crashed(self, code: int) -> GivenUp:
        """The error for crashing the process."""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return GivenUp(f"cannot read '{self.name}'", f"the program that parses it crashed ({how})")


class Answers(Protocol):
    """Answers requests: a process, or in tests the same code without one."""

    @property
    def known(self) -> int:
        """See `Parser`."""
        ...

    def ask(
        self, told: dict[str, Any], data: bytes, allowed: Allowed
    ) -> tuple[dict[str, Any], bytes]:
        """The answer to a request."""
        ...

    def end(self) -> None:
        """Ends the process; a later request starts another."""
        ...


class Parser:
    """The parsing process, running or not.

    Attributes:
        begun: how often it was started.
    """

    def __init__(self) -> None:
        self.begun = self._ended = 0
        self._asking = threading.Lock()
        self._running: _Running | None = None

    @property
    def known(self) -> int:
        """A number that changes when the process has lost what it learned."""
        self._alive()
        return self._ended

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        running = self._running
        return running.process.pid if running else None

    def ask(
        self, told: dict[str, Any], data: bytes, allowed: Allowed
    ) -> tuple[dict[str, Any], bytes]:
        """The answer to a request, and the bytes with it.

        Raises:
            GivenUp: it takes too long or too much memory, or the process crashed.
            LongctxError: the process cannot be started.
        """
        with self._asking:
            running = self._alive() or self._begin()
            bounds = {"memory": allowed.memory, "seconds": max(0.0, allowed.left)}
            try:
                return running.ask(told | bounds, data, allowed)
            except BaseException:  # Ctrl-C too: the next request would get this one's answer
                self.end()
                raise

    def end(self) -> None:
        """Ends the process, whatever it is doing; from any thread."""
        running, self._running = self._running, None
        if running:
            self._ended += 1
            running.kill()

    def _alive(self) -> "_Running | None":
        if self._running and self._running.process.poll() is not None:
            self.end()  # it was ended from outside while idle
        return self._running

    def _begin(self) -> "_Running":
        self.begun += 1
        process = _started()
        assert process.stdin  # both are pipes
        assert process.stdout
        self._running = _Running(process, process.stdin, process.stdout)
        _log.debug("the program that parses was begun as process %s", self.pid)
        return self._running


@dataclass
class _Running:
    """A process, and the thread that watches its time."""

    process: subprocess.Popen[bytes]
    going: IO[bytes]
    coming: IO[bytes]
    late: bool = False
    _until: float | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._watch, name="longctx-parser", daemon=True).start()

    def ask(
        self, told: dict[str, Any], data: bytes, allowed: Allowed
    ) -> tuple[dict[str, Any], bytes]:
        """See `Parser`."""
        began, worked = time.monotonic(), allowed.worked
        self._until = began + allowed.left
        try:
            wire.write(self.going, told, data)
            while "busy" in (answer := wire.read(self.coming))[0]:
                allowed.worked = worked + _whole(answer[0]["busy"])
                self._until = began + allowed.left
        except (EOFError, OSError, wire.Broken) as error:
            raise self._why(allowed) from error
        finally:
            self._until = None
            allowed.spent += time.monotonic() - began
        if "memory" in answer[0]:
            raise allowed.too_large()
        return answer

    def kill(self) -> None:
        """Ends the process and waits until it is gone."""
        self._over.set()
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        for pipe in (self.going, self.coming):
            with suppress(OSError):
                pipe.close()

    def _watch(self) -> None:
        """Ends the process when an answer takes too long."""
        while not self._over.wait(LOOK):
            until = self._until
            if until is not None and time.monotonic() > until:
                self.late = True
                with suppress(OSError):
                    self.process.kill()
                return

    def _why(self, allowed: Allowed) -> GivenUp:
        """Why no answer came: the process has ended, or sent something invalid."""
        most = _ended(self.process)
        code = self.process.returncode
        if self.late or code == -getattr(signal, "SIGXCPU", 0):
            return allowed.too_long()
        if most * 3 > allowed.memory:  # one large allocation can fail well below the limit
            return allowed.too_large()
        return allowed.crashed(code)


def _ended(process: subprocess.Popen) -> int:
    """Waits for a process to end, and gives its peak memory in bytes; 0 if unknown."""
    if hasattr(os, "wait4") and process.returncode is None:
        with suppress(OSError):
            # It has ended, or sends nonsense. `Popen.kill` would lose how much memory it took.
            os.kill(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    process.kill()
    process.wait()
    return 0


def _started() -> subprocess.Popen[bytes]:
    """A new process, in its own session so that Ctrl-C on the terminal does not reach it.

    Raises:
        LongctxError: the system cannot start it.
    """
    path = json.dumps([each for each in sys.path if isinstance(each, str)])
    mode = ["-X", "utf8"] if sys.flags.utf8_mode else []
    group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
    environment = os.environ | dict.fromkeys(THREADS, "1")
    try:
        command = [sys.executable, "-P", *mode, "-c", BEGIN, path]
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=not group,
            creationflags=group,
        )
    except (OSError, ValueError) as error:
        raise LongctxError(
            "cannot start the program that parses files", str(error), "Check that Python runs."
        ) from error


_answers: Answers = Parser()


def ask(
    told: dict[str, Any], data: bytes = b"", *, allowed: Allowed
) -> tuple[dict[str, Any], bytes]:
    """The answer of the parsing process to a request.

    Raises:
        GivenUp: there was none.
    """
    return _answers.ask(told, data, allowed)


def known() -> int:
    """A number that changes when the parsing process has lost what it learned."""
    return _answers.known


def end() -> None:
    """Ends the parsing process if it runs; from any thread."""
    _answers.end()


def answered_by(answers: Answers) -> Answers:
    """Replaces what answers requests from now on; returns the previous one."""
    global _answers
    before, _answers = _answers, answers
    return before


def new_number() -> int:
    """A number that is unique among what the process learns."""
    return next(_numbers)


def refusal(told: dict[str, Any]) -> UnreadableInput | None:
    """The error reported for a file or member; None if there is none."""
    error = told.get("error")
    if not isinstance(error, dict):
        return None
    kind = KINDS.get(str(error.get("kind")), UnreadableInput)
    return kind(*(str(error.get(part, "")) for part in ("what", "why", "remedy")))


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


atexit.register(end)
