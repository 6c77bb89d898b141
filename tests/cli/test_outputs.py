"""Files that are named on the command line: `-`, pipes and links, and who may read them."""

import io
import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from longctx.cli.main import app

posix = pytest.mark.skipif(os.name == "nt", reason="modes, pipes and links of POSIX")
OUTPUTS = (
    ("list", "--report", "{}"),
    ("list", "--log-file", "{}"),
    ("export", "book", "{}"),
)


def given(args: tuple[str, ...], path: Path) -> list[str]:
    return [arg.format(path) for arg in args]


@posix
@pytest.mark.parametrize("umask", [0o000, 0o027], ids=oct)
@pytest.mark.parametrize("args", OUTPUTS)
@pytest.mark.usefixtures("library")
def test_new_files_are_their_owners_alone(longctx, tmp_path, args, umask):
    before = os.umask(umask)
    try:
        assert longctx(*given(args, tmp_path / "new")).exit_code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize("args", OUTPUTS)
@pytest.mark.usefixtures("library")
def test_a_pipe_is_written_to_and_stays(longctx, tmp_path, args):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert longctx(*given(args, pipe)).exit_code == 0
    reader.join()
    assert got[0]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@posix
@pytest.mark.parametrize("args", OUTPUTS)
@pytest.mark.usefixtures("library")
def test_a_link_stays(longctx, tmp_path, args):
    (tmp_path / "link").symlink_to("file")
    assert longctx(*given(args, tmp_path / "link")).exit_code == 0
    assert os.readlink(tmp_path / "link") == "file"
    assert (tmp_path / "file").stat().st_size


@pytest.mark.usefixtures("library")
def test_a_report_has_standard_output_to_itself(longctx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain, told = longctx("list"), longctx("list", "--report", "-")
    assert json.loads(told.stdout)["result"]["documents"][0]["name"] == "book"
    assert told.stderr == plain.stdout + plain.stderr
    failed = longctx("show", "none", "--report", "-")
    assert failed.exit_code == json.loads(failed.stdout)["exit_code"] == 10
    assert not (tmp_path / "-").exists()


@pytest.mark.usefixtures("library")
def test_a_log_has_standard_output_to_itself(longctx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain, told = longctx("list"), longctx("list", "--log-file", "-")
    assert "info longctx.cli.program: done" in told.stdout
    assert "book" not in told.stdout
    assert told.stderr == plain.stdout + plain.stderr
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("list", "--json", "--report", "-"),
        ("list", "--json", "--log-file", "-"),
        ("list", "--log-file", "-", "--report", "-"),
        ("export", "book", "-", "--report", "-"),
        ("export", "book", "-", "--log-file", "-"),
    ],
)
@pytest.mark.usefixtures("library")
def test_two_things_do_not_share_standard_output(longctx, args):
    result = longctx(*args)
    assert result.exit_code == 2
    assert "both want standard output" in result.stderr
    assert "manifest" not in result.stdout


@pytest.mark.usefixtures("library")
def test_a_file_that_is_called_as_standard_output_is(longctx, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    through = longctx("export", "book", "-")
    assert longctx("export", "book", "./-").stdout == ""
    assert (tmp_path / "-").read_bytes() == through.stdout_bytes


@pytest.mark.usefixtures("library")
def test_a_reader_of_the_report_that_left_is_no_traceback(monkeypatch, capfd):
    class Left(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def fileno(self) -> int:
            return -1

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Left(), write_through=True))
    with pytest.raises(SystemExit) as ended:
        app(["list", "--report", "-"])
    monkeypatch.undo()
    assert ended.value.code == 1
    assert "Traceback" not in capfd.readouterr().err


@posix
@pytest.mark.usefixtures("library")
def test_a_log_that_takes_no_more_is_told_of_once(longctx, tmp_path):
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        os.close(os.open(device, os.O_WRONLY))
    except OSError:
        pytest.skip("no device can be made here")  # only root may, and not in every container
    result = longctx("list", "--log-file", device)
    assert result.exit_code == 0
    assert result.stderr.count("the log ends here") == 1
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr
