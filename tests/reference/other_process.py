"""A second process that holds a lock of a library, or asks, so that tests meet a real one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

_HOLD = """
import sys
from pathlib import Path
from longctx.core.store.locks import Locks

folder, kind, key = sys.argv[1:]
with getattr(Locks(Path(folder)), kind)(key):
    print("held", flush=True)
    sys.stdin.read()
"""
_ASK = """
import json, sys
from pathlib import Path
from longctx.core.profile.sampling import Sampling
from longctx.core.ask.session import Session
from longctx.core.engine.choice import Setup

library, question, length, setups = json.load(sys.stdin)
answers = {}
for name, setup in setups.items():
    with Session(Path(library), name, Setup(**setup)) as session:
        answer = session.ask(question, sampling=Sampling(max_new_tokens=length))
        answers[name] = answer.as_dict()
json.dump(answers, sys.stdout)
"""


@contextmanager
def holding(folder: Path, kind: str, key: str) -> Iterator[subprocess.Popen]:
    """The process, which holds the lock until the block ends or it is killed.

    Args:
        folder: of the library.
        kind: "shared" or "exclusive".
        key: what is locked.
    """
    command = [sys.executable, "-c", _HOLD, str(folder), kind, key]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # its end closes stdin, and waits
        assert process.stdout.readline() == b"held\n"
        yield process


def answers(library: Path, question: str, length: int, setups: dict[str, Any]) -> dict[str, dict]:
    """What a new process answers, as the JSON objects of `ask`.

    Args:
        library: the library's folder.
        question: the user's words.
        length: tokens of an answer, at most.
        setups: document -> the `Setup` that it is asked with.
    """
    given = {name: asdict(setup) for name, setup in setups.items()}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ASK],
        input=json.dumps([str(library), question, length, given]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=200,
    )
    return json.loads(done.stdout)
