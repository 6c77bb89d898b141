"""Running a case of fuzzing under watch: what may come of it, and what is a failure.

A case ends well, or in an error of our own that says something. All else is a failure: another
error, more time or memory than is allowed, a warning, something printed, something written outside
its own folders, a program that is started. `Guard` is for a process of its own.
"""

import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from longctx.core.common.errors import LongctxError

SECONDS = 5.0  # of processor time that a case may take
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGING = {
    *("os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.chmod"),
    *("os.chown", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move"),
}
_ACTING = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"}
_ACTING |= {"socket.connect", "socket.bind", "ctypes.dlopen", "webbrowser.open"}


def require_told(error: Exception) -> None:
    """A refusal says something."""
    assert str(error)


@contextmanager
def refused_at_most() -> Iterator[None]:
    """Errors of our own end what is inside, if they say something."""
    try:
        yield
    except LongctxError as error:
        require_told(error)


class Slow(BaseException):
    """A case took longer than any may."""


@dataclass(frozen=True)
class Failure:
    """What was wrong with a case.

    Attributes:
        kind: in a few words, the same for failures that are alike.
        told: all there is to say.
    """

    kind: str
    told: str


class Guard:
    """Runs cases in this process, whose hooks and limits stay as they are set here.

    Args:
        folders: where cases may write.
        empty: the one of these that holds nothing after a case.
        seconds: of processor time for a case.
    """

    def __init__(self, folders: list[Path], empty: Path, seconds: float = SECONDS):
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._empty, self._seconds = empty, seconds
        self._watching, self._acts = False, []
        self._warned: list[str] = []
        self._printed = [_captured(number) for number in (1, 2)]
        sys.addaudithook(self._watch)
        warnings.simplefilter("always")
        warnings.showwarning = self._warn
        signal.signal(signal.SIGPROF, self._stop)

    def limit_memory(self, room: int) -> None:
        """From now on no more than so many bytes of addresses beside those that are taken."""
        taken = int(_status("VmSize")) << 10
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, hard))

    def run(self, call: Callable[[], None]) -> Failure | None:
        """Runs a case; None where all is well."""
        self._acts, self._warned, self._watching = [], [], True
        failure = None
        signal.setitimer(signal.ITIMER_PROF, self._seconds, 1.0)  # again, where it is caught
        try:
            call()
        except LongctxError as error:
            failure = None if str(error) else Failure("an error that says nothing", repr(error))
        except Slow as error:
            failure = _failure(f"over {self._seconds:g} s", error)
        except MemoryError as error:
            failure = _failure("over the limit of memory", error)
        except Exception as error:
            failure = _failure(type(error).__name__, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._watching = False
        return failure or self._aside()

    def _aside(self) -> Failure | None:
        """What a case that ended well has done beside."""
        if self._acts:
            return Failure(f"did {self._acts[0][0]}", "\n".join(map(repr, self._acts[:9])))
        if self._warned:
            return Failure("warned", "\n".join(self._warned[:9]))
        for number, memory in enumerate(self._printed, 1):
            if size := os.fstat(memory).st_size:
                said = os.pread(memory, min(size, 2000), 0).decode("utf-8", "replace")
                os.ftruncate(memory, 0)
                return Failure(f"printed to {number}", said)
        if left := os.listdir(self._empty):
            for name in left:
                shutil.rmtree(self._empty / name, ignore_errors=True)
                (self._empty / name).unlink(missing_ok=True)
            return Failure("left files", "\n".join(left[:9]))
        return None

    def _watch(self, event: str, arguments: tuple) -> None:
        if not self._watching:
            return
        if event == "open":
            path, _, flags = arguments
            if not flags & _WRITES or isinstance(path, int):
                return
        elif event in _CHANGING:
            path = arguments[0]
        elif event in _ACTING:
            self._acts.append((event, str(arguments)[:200]))
            return
        else:
            return
        if not isinstance(path, int) and "/" not in os.fsdecode(path):
            return  # the store names a file from its folder; nothing else is as short
        place = os.path.abspath(os.fsdecode(path)) + "/" if not isinstance(path, int) else ""
        if not place.startswith(self._folders) and place != "/dev/null/":
            self._acts.append((event, place))

    def _warn(self, message: object, category: type, file: str, line: int, *_: object) -> None:
        self._warned.append(f"{category.__name__}: {message} ({file}:{line})")

    def _stop(self, *_: object) -> None:
        raise Slow


def _failure(what: str, error: BaseException) -> Failure:
    """A failure that is alike another where the same thing came from the same line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tests/" not in frame.filename] or list(frames)
    own = [f for f in ours if "/core/" in f.filename or "/cli/" in f.filename] or ours
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "nowhere"
    told = "".join(traceback.format_exception(error))
    return Failure(f"{what} in {place}", told[-6000:])


def _captured(number: int) -> int:
    """Takes a standard stream's place; what is printed can be looked at."""
    memory = os.memfd_create(f"printed-{number}")
    os.dup2(memory, number)
    os.set_blocking(number, True)
    stream = os.fdopen(os.dup(number), "w", buffering=1, encoding="utf-8", errors="replace")
    setattr(sys, "stdout" if number == 1 else "stderr", stream)
    return memory


def _status(key: str) -> str:
    """What Linux says of this process; kB of memory."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.split()[0]
    return "0"


def forget_peak() -> None:
    """From now on the peak of memory is that of what follows, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The most memory that this process had, in MB."""
    return int(_status("VmHWM")) / 1000 or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def timed(call: Callable[[], Failure | None]) -> tuple[Failure | None, float]:
    """What a call gives, and its seconds."""
    started = time.perf_counter()
    found = call()
    return found, time.perf_counter() - started
