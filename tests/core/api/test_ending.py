"""Programs that end while documents are open: nothing is printed, and no lock is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import longctx

PROGRAM = """
import os, pathlib, signal, sys
import longctx

def end(how):
    documents = [*longctx.Library(sys.argv[1])]
    for document in documents:
        document.find("keeper", gather_by="bm25")
    pathlib.kept = documents  # until Python has taken its modules apart
    print(len([*pathlib.Path(sys.argv[1]).glob("locks/documents/*/*.lock")]), flush=True)
    if how == "exception":
        raise ValueError("of the program")
    if how == "exit":
        sys.exit(5)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how == "closed":
        for document in documents:
            document.close()
    if how == "fork":
        if not (child := os.fork()):
            documents[0].close()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(len([*pathlib.Path(sys.argv[1]).glob("locks/documents/*/*.lock")]), flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
end(sys.argv[2])
"""


@pytest.fixture(scope="module")
def six(random_model: longctx.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of six documents; only asked."""
    folder = tmp_path_factory.mktemp("six")
    with longctx.Library(folder / "library", random_model) as library:
        for number in range(6):
            (folder / f"{number}.txt").write_text(f"the keeper wrote of boat {number}\n", "utf-8")
            library.ingest(folder / f"{number}.txt")
    return folder / "library"


@pytest.mark.parametrize(
    ("how", "code", "locks", "last"),
    [
        ("normally", 0, "6\n", None),
        ("closed", 0, "6\n", None),
        ("exception", 1, "6\n", "ValueError: of the program"),
        ("exit", 5, "6\n", None),
        ("interrupt", -signal.SIGINT, "6\n", "KeyboardInterrupt"),
        pytest.param("fork", 0, "6\n6\n", None, marks=pytest.mark.skipif(
            not hasattr(os, "fork"), reason="no fork")),
    ],
)  # fmt: skip
def test_a_program_ends_with_six_documents_open(six, how, code, locks, last):
    command = [sys.executable, "-c", PROGRAM, six, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, locks), done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1:] == ([last] if last else [])
    assert len([line for line in lines if not line.startswith(" ")]) == (2 if last else 0), lines
    assert [*six.glob("locks/documents/*/*")] == []
