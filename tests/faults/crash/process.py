"""Commands of longctx in processes of their own, forked from one that has imported everything.

A child runs the real command line, with the layer begun in it where a plan says so. What takes long
and is the same each time (imports, the model's weights, the cuts of its tokenizer) was done before
the fork.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from crash.layer import Plan, Told, room_for_told, told

PATIENCE = 240.0  # seconds after which a command hangs


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; negative: the signal that killed it.
        out, err: what it printed.
        told: what the layer says of it.
    """

    code: int
    out: str
    err: str
    told: Told


@dataclass
class Job:
    """A command to run.

    Attributes:
        argv: behind `longctx`.
        plan: what the layer does; None: it is not begun.
        grow: a file that is followed, and what it holds after the first wait; at the next wait
            comes Ctrl-C.
        delay: seconds before it begins.
        room: bytes that the process may take beside what it has when it begins.
    """

    argv: list[str]
    plan: Plan | None = None
    grow: tuple[Path, Path] | None = None
    delay: float = 0.0
    room: int | None = None
    _child: int = field(default=0, repr=False)
    _files: tuple[int, ...] = field(default=(), repr=False)

    def start(self) -> "Job":
        """Starts it; `wait` must follow."""
        self._files = os.memfd_create("out"), os.memfd_create("err"), room_for_told()
        sys.stdout.flush()
        self._child = os.fork()
        if not self._child:
            try:
                self._live()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(99)
        return self

    def wait(self) -> Ended:
        """Waits for its end; one that takes longer than PATIENCE is killed."""
        until = time.monotonic() + PATIENCE
        pause = 0.001
        while True:
            done, status = os.waitpid(self._child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > until:
                os.kill(self._child, signal.SIGKILL)
                _, status = os.waitpid(self._child, 0)
                raise TimeoutError(f"{self.argv} hangs")
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)
        out, err, shared = self._files
        texts = [os.pread(fd, 1 << 22, 0).decode(errors="replace") for fd in (out, err)]
        ended = Ended(os.waitstatus_to_exitcode(status), *texts, told(shared))
        for fd in self._files:
            os.close(fd)
        return ended

    def run(self) -> Ended:
        """Starts it and waits for its end."""
        return self.start().wait()

    def _live(self) -> None:
        """The child's life."""
        from longctx.cli.main import app

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
        out, err, shared = self._files
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")
        if self.grow:
            _follow_script(*self.grow)
        if self.delay:
            time.sleep(self.delay)
        if self.room is not None:
            has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (has + self.room,) * 2)
        if self.plan:
            self.plan.begin(shared)
        code: object = 0
        try:
            app(self.argv, prog_name="longctx")
        except SystemExit as left:
            code = left.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _follow_script(file: Path, content: Path) -> None:
    """What happens while a file is followed: it grows at the first wait, Ctrl-C at the second."""
    from longctx.core.ingest import follow

    waited = 0
    sleep = time.sleep

    def wait(seconds: float) -> None:
        nonlocal waited
        if seconds != follow.POLL:
            return sleep(seconds)
        waited += 1
        if waited == 1:
            file.write_bytes(content.read_bytes())
        else:
            os.kill(os.getpid(), signal.SIGINT)
            sleep(1)

    time.sleep = wait


def prepare(model: Path) -> None:
    """Does what every child would do first; no thread may be left behind."""

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    for name in [name for name in os.environ if name.startswith("LONGCTX_")]:
        del os.environ[name]
    os.environ["LONGCTX_DEFAULT_MODEL"] = "tiny"
    os.environ["LONGCTX_ANSWER_MODEL"] = "own"
    import torch

    torch.set_num_threads(1)
    from longctx.cli import main
    from longctx.core.ask import asking, session
    from longctx.core.engine import setup, staying
    from longctx.core.engine.choice import Setup
    from longctx.core.ingest import append, draft, follow, ingest
    from longctx.core.retrieve import finding
    from longctx.core.store import archive, upkeep, verify
    from longctx.core.tokens import tokens

    assert all((main, append, asking, finding, follow, ingest, session, archive, upkeep))
    assert verify
    draft.LEAST = 0  # short documents get one too
    stay = staying.weights_stay()
    stay.__enter__()
    prepare.staying = stay  # as long as the process lives
    chosen = Setup(
        model=str(model), profile=str(model / "profile.yaml"), device="cpu", dtype="fp32", threads=1
    )
    engine = setup.prepare(chosen)
    assert engine.decoder
    assert tokens.TokenStream(engine.files.tokenizer)


def arguments(model: Path, further: bool) -> list[str]:
    """Options that say with which model, and how; `further`: the document says the latter."""
    profile = [] if further else ["--profile", str(model / "profile.yaml")]
    how = ["--device", "cpu", "--dtype", "fp32", "--threads", "1"]
    return ["--model", str(model), *profile, *how]


def described(ended: Ended) -> str:
    """How it ended, for people."""
    texts = {"code": ended.code, "out": ended.out[-2000:], "err": ended.err[-2000:]}
    return json.dumps({**texts, "told": vars(ended.told)})
