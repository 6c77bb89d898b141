"""`longctx` in a process forked from one that has imported what takes seconds: real, begun sooner.

It has its own descriptors, environment, signals and end. What a start itself does is for others:
`test_starts.py`, `test_streams.py`, `test_main.py`, `test_install.py`.
"""

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from functools import cache
from pathlib import Path
from typing import Any

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL


class Process:
    """A command of ours, as far as tests need it with the interface of `subprocess.Popen`.

    Args:
        args: of the command line, after `longctx`.
        stdin, stdout, stderr: None (that of the tests), PIPE, DEVNULL, or what has a descriptor.
        env: its environment; None: that of the tests.
        terminal: whether standard input becomes its terminal, in a session of its own.
        before: Python code that is run first.
        text: whether its pipes are for text.

    Attributes:
        pid, returncode: as those of `Popen`; also `stdin`, `stdout` and `stderr`, of pipes.
    """

    def __init__(
        self,
        args: list[Any],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        env: dict[str, str] | None = None,
        terminal: bool = False,
        before: str = "",
        text: bool = False,
    ):
        self.args, self.returncode = args, None
        self.stdin = self.stdout = self.stderr = None
        theirs, close = [], []
        for number, (name, given) in enumerate(
            (("stdin", stdin), ("stdout", stdout), ("stderr", stderr))
        ):
            if given == PIPE:
                ends = os.pipe()
                mine = ends[number == 0]
                given = ends[number != 0]
                close.append(given)
                how = ("w" if number == 0 else "r") + ("" if text else "b")
                setattr(self, name, os.fdopen(mine, how))
            elif given == DEVNULL:
                given = os.open(os.devnull, os.O_RDWR)
                close.append(given)
            elif given is None:
                given = number
            theirs.append(given if isinstance(given, int) else given.fileno())
        self._ended, told = os.pipe()
        job = {
            "args": [os.fspath(arg) for arg in args],
            "env": {**(os.environ if env is None else env)},
            "cwd": os.getcwd(),
            "terminal": terminal,
            "before": before,
        }
        link = _server()
        socket.send_fds(link, [json.dumps(job).encode() + b"\n"], [*theirs, told])
        for descriptor in (*close, told):
            os.close(descriptor)
        self.pid = int(_line(link, b""))

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Its exit code, if it has ended; negative: the signal that ended it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then.
        """
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._ended, 20))
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """What it still writes to its pipes, to its end; its standard input is closed."""
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        read: dict[str, Any] = {"stdout": None, "stderr": None}

        def drain(name: str) -> None:
            stream = getattr(self, name)
            if stream is not None and not stream.closed:
                read[name] = stream.read()
                stream.close()

        both = [threading.Thread(target=drain, args=(name,)) for name in read]
        for thread in both:
            thread.start()
        try:
            self.wait(timeout)
        finally:
            if self.returncode is None:
                self.kill()
            for thread in both:
                thread.join()
        return read["stdout"], read["stderr"]


def run(args: list[Any], timeout: float | None = None, **more: Any) -> subprocess.CompletedProcess:
    """Runs a command to its end, with text from its pipes."""
    more = {"stdout": PIPE, "stderr": PIPE, "text": True, **more}
    with Process(args, **more) as process:
        out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


@cache
def _server() -> socket.socket:
    """The link to the process that has imported what takes long; it ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def _line(link: socket.socket, begun: bytes) -> bytes:
    """A whole line of which a part may have come."""
    while not begun.endswith(b"\n"):
        more = link.recv(1 << 16)
        if not more:
            raise EOFError("the process that has imported everything is gone")
        begun += more
    return begun


# --- the process that is forked ---


def _serve(link: socket.socket) -> None:
    """Forks a process for each job; says its number, and how it ended."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([link, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 10)
            _tell_of_the_ended(told)
        if link not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(link, 1 << 16, 4)
        if not data:
            for child in told:
                os.kill(child, signal.SIGKILL)
            return
        job = json.loads(_line(link, data))
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (woken, wake, link.detach(), *told.values()):
                os.close(descriptor)
            _live(job, descriptors)
            return
        *streams, told[child] = descriptors
        for descriptor in streams:
            os.close(descriptor)
        link.sendall(f"{child}\n".encode())


def _tell_of_the_ended(told: dict[int, int]) -> None:
    for child in [*told]:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(BrokenPipeError):
                os.write(told[child], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(told.pop(child))


def _live(job: dict[str, Any], descriptors: list[int]) -> None:
    """The life of a command; as at its start, but for what is imported already."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    if job["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    tempfile.tempdir = None
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    exec(job["before"], {})
    import longctx

    sys.argv = [str(Path(longctx.__file__).with_name("__main__.py")), *job["args"]]
    from longctx.cli.__main__ import main

    main()


def _import_all() -> None:
    """What commands that ask and ingest import; none of it computes, and no thread is begun."""
    from importlib import import_module

    for name in (
        "cli.main",
        "cli.ask",
        "core.ask.session",
        "core.ingest.ingest",
        "core.dense.texts",
    ):
        import_module(f"longctx.{name}")
    for name in ("core.engine.setup", "core.model.plain", "core.api.library", "core.api.asking"):
        import_module(f"longctx.{name}")


if __name__ == "__main__":
    _import_all()
    assert threading.active_count() == 1
    _serve(socket.socket(fileno=int(sys.argv[1])))
