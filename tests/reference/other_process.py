"""A second process that holds a lock of a library, so that tests meet a real one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import sys
from pathlib import Path
from longctx.core.store.locks import Locks

folder, kind, key = sys.argv[1:]
with getattr(Locks(Path(folder)), kind)(key):
    print("held", flush=True)
    sys.stdin.read()
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
