"""Reads documents in processes of their own that are killed where a test says.

A server, so that torch is imported once: it takes one JSON line a job on standard input, forks,
and the child does what it says. A job names an event at which the child kills itself: the n-th time
that Python opens, renames or deletes a file of the library, just before it happens. Nothing in
longctx knows of this. Answers with one JSON line: the events seen, and how the child ended.
"""

import errno
import functools
import json
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import torch

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.ingest import draft
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.tokens import tokens

EVENTS = {"open": 0, "os.rename": 0, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0}
FAILED = 70  # exit code of a child whose ingest ended with an error


def is_inside(library: str, event: str, args: tuple) -> bool:
    """Whether something happens to a file of the library: the store names it from its folder."""
    path = args[EVENTS[event]]
    if isinstance(path, int) or (event == "open" and args[2] & os.O_DIRECTORY):
        return False
    path = os.fsdecode(path)
    return library in path or "/" not in path or path.startswith("/proc/self/fd/")


def watch(library: str, fatal: int | None, told: int) -> None:
    """Counts what happens to the library's files, and dies at event number `fatal`."""
    seen = 0

    def see(event: str, args: tuple) -> None:
        nonlocal seen
        if event in EVENTS and is_inside(library, event, args):
            if seen == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            os.pwrite(told, str(seen).encode(), 0)

    sys.addaudithook(see)


def forbid(library: str, event: str, args: tuple) -> None:
    """Refuses what a read-only disk refuses, also to root, who may do all."""
    writes = event != "open" or args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in EVENTS and writes and is_inside(library, event, args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), args[EVENTS[event]])


def read(job: dict, told: int) -> None:
    """The child's life."""
    if job.get("file_size"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], resource.RLIM_INFINITY))
    if job.get("read_only"):
        sys.addaudithook(partial(forbid, job["library"]))
    if job.get("draft"):
        draft.LEAST = 0
    watch(job["library"], job.get("fatal"), told)
    try:
        if job.get("ask"):
            with Session(Path(job["library"]), None, Setup(**job["setup"])) as session:
                session.ask(job["ask"])
            os._exit(0)
        done = ingesting.ingest(
            Path(job["library"]),
            job["paths"],
            Setup(**job["setup"]),
            replace=job.get("replace", False),
            cadence=Cadence.given(job["every"], None),
        )
        print(json.dumps({"reused": done.reused_tokens, "status": done.status}), file=sys.stderr)
    except LongctxError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print(json.dumps({"error": str(error), "error_code": error.exit_code}), file=sys.stderr)
        os._exit(FAILED)
    os._exit(0)


def run(job: dict) -> dict:
    """Forks a child for a job and waits for it."""
    engine = ingesting.prepare(Setup(**job["setup"]))
    assert engine.decoder, "is loaded once, before the fork"
    assert tokens.TokenStream(engine.files.tokenizer), "has its cuts tried once, before the fork"
    output, told = os.memfd_create("output"), os.memfd_create("told")
    child = os.fork()
    if not child:
        os.dup2(output, 2)
        try:
            read(job, told)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    said = os.pread(output, 1 << 16, 0).decode()
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return {
        "events": int(os.pread(told, 20, 0) or 0),
        "code": os.waitstatus_to_exitcode(status),
        "said": said,
        **(json.loads(lines[-1]) if lines else {}),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # no threads that a fork would leave behind
    ingesting.prepare = functools.cache(prepare)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
