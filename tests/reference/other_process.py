"""A second process that holds a lock of a library, or asks, so that tests meet a real one."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import preloaded

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

with open(GIVEN, encoding="utf-8") as file:
    library, question, length, setups = json.load(file)
answers = {}
for name, setup in setups.items():
    with Session(Path(library), name, Setup(**setup)) as session:
        answer = session.ask(question, sampling=Sampling(max_new_tokens=length))
        answers[name] = answer.as_dict()
json.dump(answers, sys.stdout)
sys.stdout.flush()
raise SystemExit
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
    """What another process answers, as the JSON objects of `ask`; one that has only imported.

    Args:
        library: the library's folder.
        question: the user's words.
        length: tokens of an answer, at most.
        setups: document -> the `Setup` that it is asked with.
    """
    given = {name: asdict(setup) for name, setup in setups.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([str(library), question, length, given], file)
        file.flush()
        done = preloaded.run([], timeout=200, before=f"GIVEN = {file.name!r}\n{_ASK}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
