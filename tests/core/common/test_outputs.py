"""Files that a user names: whole or as they were, private, never replaced where they are none."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from longctx.core.common import outputs
from longctx.core.common.errors import LongctxError, StateMismatch, UsageError
from longctx.core.common.outputs import STANDARD, Output, make_folder, standard_output_kept

posix = pytest.mark.skipif(os.name == "nt", reason="modes, pipes and signals of POSIX")
DIES = """
import os, signal, sys
from pathlib import Path
from longctx.core.common.outputs import Output
with Output(Path(sys.argv[1])).whole() as out:
    out.write(b"half")
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


class Killed(BaseException):
    """Ends a context as Ctrl-C does."""


# ---- whole


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "book.longctx"
    with Output(path).whole(replace=False) as out:
        out.write(b"1")
        assert not path.exists()
    assert path.read_bytes() == b"1"
    with pytest.raises(UsageError, match="it exists"), Output(path).whole(replace=False):
        pass
    with Output(path).whole() as out:
        out.write(b"2")
        assert path.read_bytes() == b"1"
    assert path.read_bytes() == b"2"
    assert names(tmp_path) == ["book.longctx"]


def stopped(path: Path, act: Callable[[], object], replace: bool) -> None:
    with Output(path).whole(replace) as out:
        out.write(b"new")
        act()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Killed(), Killed),
        (StateMismatch("damaged"), StateMismatch),
        (OSError(28, "No space left"), LongctxError),
    ],
)
def test_what_was_not_finished_leaves_all_as_it_was(tmp_path, error, told):
    def fail() -> None:
        raise error

    path = tmp_path / "book.longctx"
    path.write_bytes(b"old")
    with pytest.raises(told):
        stopped(path, fail, replace=True)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["book.longctx"]


def test_a_disk_that_is_full_at_the_end(tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LongctxError, match=r"cannot write the report .*No space left.*Do this"):
        Output(path, "the report ", "Do this.").write("new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["run.json"]


def test_a_file_that_appears_meanwhile_is_not_written_over(tmp_path):
    path = tmp_path / "book.longctx"
    with pytest.raises(UsageError, match="exists"):
        stopped(path, lambda: path.write_bytes(b"theirs"), replace=False)
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["book.longctx"]


@pytest.mark.parametrize("call", ["whole", "appending"])
def test_places_that_cannot_be_written_are_refused(tmp_path, call):
    for path, why in ((tmp_path, "a folder"), (tmp_path / "none/x", "no folder")):
        with pytest.raises(UsageError, match=why), getattr(Output(path), call)():
            pass
    with pytest.raises(UsageError, match="name too long"), Output(tmp_path / ("x" * 300)).whole():
        pass


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write it")
def test_a_folder_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="not writable"):
        Output(tmp_path / "x").require_writable()
    tmp_path.chmod(0o700)


# ---- private


@posix
@pytest.mark.usefixtures("umask")
def test_a_new_file_is_its_owners_alone(tmp_path):
    Output(tmp_path / "whole").write("x")
    with Output(tmp_path / "log").appending() as out:
        out.write(b"x")
    assert (mode(tmp_path / "whole"), mode(tmp_path / "log")) == (0o600, 0o600)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "log").read_bytes() == b"x"


@posix
@pytest.mark.parametrize("kept", [0o644, 0o660, 0o400])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, kept):
    path = tmp_path / "run.json"
    path.touch()
    path.chmod(kept)
    Output(path).write("x")
    assert (mode(path), path.read_text()) == (kept, "x")


@posix
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="root alone gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    path.touch()
    path.chmod(0o640)
    os.chown(path, 1234, 2345)
    Output(path).write("x")
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (1234, 2345, 0o640)

    def refuse(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    Output(path).write("y")
    assert mode(path) == 0o600  # the group is another one now


@posix
def test_a_folder_is_its_owners_alone_unless_it_was_there(tmp_path):
    make_folder(tmp_path / "a/b")
    assert mode(tmp_path / "a/b") == 0o700
    (tmp_path / "a/b").chmod(0o755)
    make_folder(tmp_path / "a/b")
    assert mode(tmp_path / "a/b") == 0o755


# ---- links


@posix
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("call", ["whole", "appending"])
def test_a_link_stays_and_its_file_is_written(tmp_path, there, call):
    (tmp_path / "far").mkdir()
    file, link, first = tmp_path / "far/file", tmp_path / "link", tmp_path / "first"
    if there:
        file.write_bytes(b"")
    link.symlink_to("far/file")
    first.symlink_to(link)
    with getattr(Output(first), call)() as out:
        out.write(b"x")
    assert (os.readlink(first), os.readlink(link)) == (str(link), "far/file")
    assert (file.read_bytes(), names(tmp_path / "far")) == (b"x", ["file"])
    assert names(tmp_path) == ["far", "first", "link"]


@posix
def test_links_that_lead_round_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError, match="cannot write"):
        Output(tmp_path / "a").write("x")


# ---- what is no regular file


@posix
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("call", ["whole", "appending"])
def test_a_pipe_is_written_to_and_stays(tmp_path, call, linked):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    if linked:
        (tmp_path / "link").symlink_to(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with getattr(Output(tmp_path / "link" if linked else pipe), call)() as out:
        out.write(b"x" * 100_000)
    reader.join()
    assert got == [b"x" * 100_000]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@posix
def test_a_pipe_that_nobody_reads_does_not_wait_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "PATIENCE", 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LongctxError, match="nobody reads this pipe"):
        Output(tmp_path / "pipe").write("x")


@posix
@pytest.mark.parametrize("replace", [True, False])
def test_a_device_is_written_to_and_stays(replace):
    reading, writing = os.openpty()
    device = Path(os.ttyname(writing))
    before = device.lstat()
    Output(device).write("hello", replace)
    assert os.read(reading, 99) == b"hello"
    assert os.path.samestat(before, device.lstat())
    for handle in (reading, writing):
        os.close(handle)


@posix
def test_a_device_without_room_is_an_error(tmp_path):
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))  # a /dev/full that may be lost
        os.close(os.open(device, os.O_WRONLY))
    except OSError:
        pytest.skip("no device can be made here")
    with pytest.raises(LongctxError, match="No space left"):
        Output(device).write("x")
    assert stat.S_ISCHR(device.lstat().st_mode)


@posix
def test_a_socket_is_refused():
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder) / "s"  # of a short path
        listening.bind(str(path))
        with pytest.raises(UsageError, match="it is a socket"):
            Output(path).write("x")
        assert stat.S_ISSOCK(path.lstat().st_mode)


@posix
def test_a_descriptor_is_written_to_where_it_stands(tmp_path):
    file = tmp_path / "file"
    with file.open("wb") as out:
        out.write(b"before ")
        out.flush()
        (tmp_path / "link").symlink_to(f"/dev/fd/{out.fileno()}")
        Output(tmp_path / "link").write("x", replace=False)
        Output(Path(f"/dev/fd/{out.fileno()}")).write("y")
        out.write(b" after")
    assert file.read_bytes() == b"before xy after"
    with pytest.raises(UsageError, match="Bad file descriptor"):
        Output(Path("/dev/fd/987")).write("x")


@posix
def test_a_file_that_is_standard_output_already_is_not_replaced(tmp_path):
    code = (
        "from longctx.core.common.outputs import *; print('first'); Output(Path('out')).write('x')"
    )
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "first\nx"
    assert names(tmp_path) == ["out"]


def test_standard_output(capsysbinary):
    print("before")
    with standard_output_kept():
        print("aside")
        Output(STANDARD).write("whole\n")
        with Output(STANDARD).appending() as out:
            out.write(b"appended\n")
    print("after")
    told = capsysbinary.readouterr()
    assert told.out == b"before\nwhole\nappended\nafter\n"
    assert told.err == b"aside\n"


def test_standard_output_that_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UsageError, match="standard output is closed"):
        Output(STANDARD).write("x")


# ---- what was left


@posix
def test_what_a_killed_process_has_left_goes_with_the_next_output(tmp_path):
    old = tmp_path / "old"
    old.write_bytes(b"old")
    died = subprocess.run([sys.executable, "-c", DIES, old], check=False)
    assert died.returncode == -signal.SIGKILL
    assert old.read_bytes() == b"old"
    (left,) = {*names(tmp_path)} - {"old"}
    assert outputs.is_unfinished(left)
    assert (tmp_path / left).read_bytes() == b"half"
    Output(tmp_path / "other").write("x")
    assert names(tmp_path) == ["old", "other"]


@posix
def test_what_a_living_process_writes_stays(tmp_path):
    with Output(tmp_path / "first").whole() as out:
        out.write(b"1")
        Output(tmp_path / "second").write("2")
        (left,) = {*names(tmp_path)} - {"second"}
        assert outputs.is_unfinished(left)
    assert names(tmp_path) == ["first", "second"]
    assert (tmp_path / "first").read_bytes() == b"1"


@posix
def test_nothing_else_is_deleted(tmp_path):
    left = f".longctx-{'0' * 15}"
    (tmp_path / "home").mkdir()
    kept = tmp_path / "home/file"
    kept.write_text("x")
    (tmp_path / f"{left}1.new").symlink_to(kept)
    (tmp_path / f"{left}2.new").mkdir()
    os.mkfifo(tmp_path / f"{left}3.new")
    for name in (f"{left}4.new.txt", f"{left}.new", f"x{left}5.new", ".tmp-0123456789abcdef"):
        (tmp_path / name).touch()
    before = names(tmp_path)
    Output(tmp_path / "out").write("x")
    assert names(tmp_path) == sorted([*before, "out"])
    assert kept.read_text() == "x"
