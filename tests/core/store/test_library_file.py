"""Making a library, and telling one from other folders."""

import os
import subprocess
import sys

import pytest
from small_documents import write

from longctx.core.common.errors import LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.store import library_file
from longctx.core.store.library import Library
from longctx.core.store.library_file import LibraryFile

pytestmark = pytest.mark.usefixtures("no_sync")


def test_open(tmp_path):
    with pytest.raises(NotFound, match="longctx ingest"):
        Library.open(tmp_path / "none")
    made = tmp_path / "a" / "b"
    Library.open(made, create=True)
    assert (made / "library.json").read_bytes() == b'{\n "format": 4\n}\n'
    assert Library.open(made).documents() == []
    with pytest.raises(NotFound, match="no document"):
        Library.open(made).latest()
    with pytest.raises(UsageError, match=r"no library\.json"):
        Library.open(tmp_path, create=True)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        Library.open(tmp_path / "file", create=True)
    with pytest.raises(LongctxError, match="cannot write"):
        Library.open(tmp_path / "file" / "library", create=True)
    with pytest.raises(LongctxError, match="cannot open"):
        Library.open(tmp_path / ("x" * 300))
    (made / "library.json").write_text('{"format": 1}')
    with pytest.raises(StateMismatch, match=r"'format': 1.*uses format 4"):
        Library.open(made)


MAKE = """
import sys
from pathlib import Path
from longctx.core.store.library import Library
print(flush=True)
sys.stdin.readline()
for number in range(40):
    Library.open(Path(sys.argv[1]) / str(number), create=True)
"""


def test_processes_that_make_one_library_at_once_all_have_it(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", MAKE, str(tmp_path)]
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for process in processes:
        process.stdout.readline()  # it is ready
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate()[1] for process in processes] == [""] * 4
    assert all(os.listdir(folder) == ["library.json"] for folder in tmp_path.iterdir())


@pytest.mark.parametrize("moment", ["_is_something_else", "write_text"])
def test_a_library_that_another_process_makes_meanwhile_is_taken(tmp_path, monkeypatch, moment):
    owner = LibraryFile if moment == "_is_something_else" else library_file
    real = getattr(owner, moment)

    def meanwhile(*args):
        monkeypatch.undo()
        write(Library.open(tmp_path / "new", create=True))
        if moment == "write_text":
            raise LongctxError("cannot write")
        return real(*args)

    monkeypatch.setattr(owner, moment, meanwhile)
    assert Library.open(tmp_path / "new", create=True).latest() == "book"
