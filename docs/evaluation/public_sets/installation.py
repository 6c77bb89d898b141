"""A `longctx` to measure, in a process of its own: this one, or one of another environment."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from public_sets.items import Record

WORKER = Path(__file__).parent / "worker.py"


class Refused(Exception):
    """longctx ended a request with an error.

    Attributes:
        exit_code: what the command would have ended with.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def python_of(longctx: Path | None) -> list[str]:
    """The Python that has a longctx.

    Args:
        longctx: the command, its Python, or the folder of its environment; None: this Python.

    Raises:
        FileNotFoundError: there is no Python there.
    """
    if longctx is None:
        return [sys.executable]
    if longctx.name.startswith("python"):
        found = longctx
    else:
        found = (longctx / "bin" if longctx.is_dir() else longctx.parent) / "python"
    if not found.exists():
        raise FileNotFoundError(f"no Python for {longctx}: {found} is not there")
    return [str(found)]


class Installation:
    """longctx with a library and a model, both open until the end of the `with`.

    Args:
        longctx: see `python_of`.
        library: folder of the documents, made if absent.
        model: arguments of `longctx.Model` that are not the default.

    Attributes:
        version, code: of the package; `code` is a digest of its files.
    """

    def __init__(self, longctx: Path | None, library: Path, model: Record):
        away = {"PYTHONPATH"} if longctx else set()  # it would name the wrong package
        environment = {key: value for key, value in os.environ.items() if key not in away}
        self._process = subprocess.Popen(
            [*python_of(longctx), "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        reply = self._do("start", library=str(library), model=model)
        self.version, self.code = reply["version"], reply["code"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait()

    def ingest(self, paths: Sequence[Path]) -> Record:
        """Reads files into a document: its `name`, `tokens`, `model`, `seconds`."""
        return self._do("ingest", paths=[*map(str, paths)])

    def ask(self, documents: Sequence[str], question: str, **options: object) -> Record:
        """The object of `longctx ask --json`."""
        return self._do("ask", documents=documents, question=question, options=options)

    def find(self, documents: Sequence[str], question: str, **options: object) -> Record:
        """The object of `longctx find --json`."""
        return self._do("find", documents=documents, question=question, options=options)

    def _do(self, what: str, **request: object) -> Record:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": what, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise Refused(f"the process of longctx ended with exit code {code}; see above", code)
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"], reply["exit_code"])
        return reply
