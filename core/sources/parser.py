"""The parsing process as a command sees it: started on demand, restarted when it ends.

One runs at a time. A request that takes too long, or more memory than it may, is an error that
says so; the program is ended for it, and the next request begins it anew. What it answers is
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
LOOK = 0.1  # seconds between two looks at whether a request takes too long
KINDS = {kind.__name__: kind for kind in (UnreadableInput, NotText, TooMuch)}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_log = logging.getLogger(__name__)
_numbers = count()


class GivenUp(UnreadableInput):
    """A file passed a limit, or the program that parses crashed over it."""


@dataclass
class Allowed:
    """What parsing one file or member may take, and the time that it took.

    Args:
        name: of the file or member.
        memory: bytes.
        seconds: at least; for bytes, one more each `PER_SECOND`.
        size: bytes of the file on the disk.
        most: bytes that may come of it.

    Attributes:
        worked: bytes that were unpacked or came of it.
        spent: seconds.
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
        """What a user allows."""
        bounds = rules.memory or MEMORY, rules.seconds or SECONDS, size
        return cls(name, *bounds, rules.max_unpacked or UNPACKED)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds + (self.size + min(self.worked, self.most)) / PER_SECOND - self.spent

    def too_long(self) -> GivenUp:
        """It took too much time."""
        return GivenUp(
            f"cannot read '{self.name}'",
            f"parsing it took over {self.seconds:,} seconds",
            "If that is right, allow more: --max-parser-time.",
        )

    def too_large(self) -> GivenUp:
        """It took too much memory."""
        return GivenUp(
            f"cannot read '{self.name}'",
            f"parsing it took over {show_bytes(self.memory)} of memory",
            "If that is right, allow more: --max-parser-memory.",
        )

    def crashed(self, code: int) -> GivenUp:
        """The program ended over it."""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return GivenUp(f"cannot read '{self.name}'", f"the program that parses it crashed ({how})")


class Answers(Protocol):
    """What answers requests: a program, or in tests the same without one."""

    @property
    def known(self) -> int:
        """As of `Parser`."""
        ...

    def ask(
        self, told: dict[str, Any], data: bytes, allowed: Allowed
    ) -> tuple[dict[str, Any], bytes]:
        """The answer to a request."""
        ...

    def end(self) -> None:
        """Ends it; it can be asked again."""
        ...


class Parser:
    """The program, whether it runs or not.

    Attributes:
        begun: how often it was begun.
    """

    def __init__(self) -> None:
        self.begun = self._ended = 0
        self._asking = threading.Lock()
        self._running: _Running | None = None

    @property
    def known(self) -> int:
        """Another number as soon as it does not know any more what it was told."""
        self._alive()
        return self._ended

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        running = self._running
        return running.process.pid if running else None

    def ask(
        self, told: dict[str, Any], data: bytes, allowed: Allowed
    ) -> tuple[dict[str, Any], bytes]:
        """The answer to a request, with what is beside it.

        Raises:
            GivenUp: it takes too long or too much memory, or the program crashed.
            LongctxError: the program cannot be begun.
        """
        with self._asking:
            running = self._alive() or self._begin()
            bounds = {"memory": allowed.memory, "seconds": max(0.0, allowed.left)}
            try:
                return running.ask(told | bounds, data, allowed)
            except BaseException:  # Ctrl-C too: what it is at would be taken for another answer
                self.end()
                raise

    def end(self) -> None:
        """Ends the program, whatever it does; from any thread."""
        running, self._running = self._running, None
        if running:
            self._ended += 1
            running.kill()

    def _alive(self) -> "_Running | None":
        if self._running and self._running.process.poll() is not None:
            self.end()  # somebody else has ended it, while it was at nothing
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
    """A process, and what watches over the time that it takes."""

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
        """As of `Parser`."""
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
        """Ends the process, and returns when it is gone."""
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
        """Why no answer came: the process has ended, or does not say what it should."""
        most = _ended(self.process)
        code = self.process.returncode
        if self.late or code == -getattr(signal, "SIGXCPU", 0):
            return allowed.too_long()
        if most * 3 > allowed.memory:  # what asks for more at once has less before
            return allowed.too_large()
        return allowed.crashed(code)


def _ended(process: subprocess.Popen) -> int:
    """Waits for the end of a process, and says how many bytes it took at most; 0: unknown."""
    if hasattr(os, "wait4") and process.returncode is None:
        with suppress(OSError):
            # It has ended, or talks nonsense. After `Popen.kill` nobody could say what it took.
            os.kill(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    process.kill()
    process.wait()
    return 0


def _started() -> subprocess.Popen[bytes]:
    """A process of the program, in a session of its own: Ctrl-C on the terminal is not for it.

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
    """The answer of the program to a request.

    Raises:
        GivenUp: it gave none.
    """
    return _answers.ask(told, data, allowed)


def known() -> int:
    """Another number as soon as the program does not know any more what it was told."""
    return _answers.known


def end() -> None:
    """Ends the program, if it runs; from any thread."""
    _answers.end()


def answered_by(answers: Answers) -> Answers:
    """Has other answers given from now on; those before."""
    global _answers
    before, _answers = _answers, answers
    return before


def new_number() -> int:
    """A number that nothing else that the program is told of has."""
    return next(_numbers)


def refusal(told: dict[str, Any]) -> UnreadableInput | None:
    """The error that is told of a file or member; None: there is none."""
    error = told.get("error")
    if not isinstance(error, dict):
        return None
    kind = KINDS.get(str(error.get("kind")), UnreadableInput)
    return kind(*(str(error.get(part, "")) for part in ("what", "why", "remedy")))


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


atexit.register(end)
