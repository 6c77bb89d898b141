"""A job in a separate process, which ends with the process that started it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# -P: do not import modules from the user's current folder.
COMMAND = (sys.executable, "-P", "-m", "longctx.core.measure.eval.compare_job")
TEMPORARY = ("TMPDIR", "TEMP", "TMP")  # variables that name the folder for temporary files
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
CLIP = 300  # characters of a process's last line


class Died(Exception):
    """A process failed; the text says how."""


def messages(job: str, command: Sequence[str] = COMMAND) -> Generator[dict[str, Any]]:
    """Runs a job and yields its messages.

    Ctrl-C, an error or `close` ends the process too and deletes its temporary files.

    Args:
        job: its standard input.
        command: the program; it writes one JSON object per line.

    Raises:
        Died: its exit code was not 0.
    """
    with TemporaryDirectory(prefix="longctx-compare-", ignore_cleanup_errors=True) as folder:
        errors = Path(folder) / "stderr.txt"
        env = {**os.environ, **QUIET, **dict.fromkeys(TEMPORARY, folder)}
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env
            ) as process,
        ):
            try:
                yield from _listen(process, job)
            except BaseException:  # Ctrl-C and `close` too: no process outlives its reader
                process.kill()
                raise
        if process.returncode:
            raise Died(_how(process.returncode, errors))


def _listen(process: subprocess.Popen, job: str) -> Iterator[dict[str, Any]]:
    assert process.stdin  # both are pipes
    assert process.stdout
    try:
        process.stdin.write(job.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has already ended, as its exit code shows
    for line in process.stdout:
        if line.endswith(b"\n"):  # else it died while writing, as its exit code shows
            yield json.loads(line)


def _how(code: int, errors: Path) -> str:
    """How a process ended, and its last line on standard error."""
    lines = errors.read_text("utf-8", "replace").strip().splitlines()
    last = lines[-1].strip()[:CLIP] if lines else ""
    if code >= 0:
        return f"the process ended with exit code {code}{': ' * bool(last)}{last}"
    killed = code == -getattr(signal, "SIGKILL", 9)
    why = "the system ended the process, as it does when memory runs out" if killed else ""
    return why or f"the process was ended by signal {-code}{': ' * bool(last)}{last}"
