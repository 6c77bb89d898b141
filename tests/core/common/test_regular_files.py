"""Only regular files are opened, and no more of them is read than may be."""

import os
import threading

import pytest

from longctx.core.common import regular_files
from longctx.core.common.regular_files import (
    NO_FILE,
    NotRegular,
    TooLarge,
    is_regular,
    open_regular,
    parsed_json,
    read_json,
    read_regular,
    read_text,
)

pytestmark = pytest.mark.usefixtures("never_waits")


def test_a_file_reads_as_any_other(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"a\r\nb\rc\n")
    link.symlink_to(file)
    for path in (file, str(file), link):
        assert is_regular(path)
        with open_regular(path) as opened:
            assert opened.read(1) == b"a"
            assert os.get_blocking(opened.fileno())
            assert not os.get_inheritable(opened.fileno())
        assert read_regular(path, 7) == b"a\r\nb\rc\n"
        assert read_text(path, 7) == "a\nb\nc\n"


def test_what_is_no_file_is_not_opened(no_file):
    assert not is_regular(no_file)
    for read in (open_regular, lambda path: read_regular(path, 9), lambda path: read_json(path, 9)):
        with pytest.raises(NotRegular) as error:
            read(no_file)
        assert error.value.strerror == NO_FILE


def test_what_takes_the_place_of_a_file_is_not_read(tmp_path, monkeypatch):
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    status = os.stat(file)
    monkeypatch.setattr(regular_files.os, "stat", lambda path, **_: status)  # exchanged since
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(NotRegular):
        open_regular(pipe)
    assert before in (0, len(os.listdir("/proc/self/fd")))


@pytest.mark.parametrize("name", ["none", "loop", "dir", "dir/x/y", "a" * 300, "nul\0"])
def test_what_cannot_be_opened(tmp_path, name):
    (tmp_path / "dir").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    path = str(tmp_path / name)
    assert not is_regular(path)
    with pytest.raises((OSError, ValueError)) as error:
        open_regular(path)
    assert not isinstance(error.value, NotRegular)


def test_a_file_has_its_limit(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, 5) == b"12345"
    for most in (4, 0):
        with pytest.raises(TooLarge, match=f"it has 5 bytes, and {most} are the most"):
            read_regular(file, most)
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(TooLarge, match="1,099,511,627,776 bytes, and 5 are"):
        read_regular(file, 5)


def test_what_tells_no_size_has_its_limit_too():
    path = "/proc/self/status"  # as of a file that grows
    if not os.path.exists(path):
        path = os.devnull
    with pytest.raises((TooLarge, NotRegular)) as error:
        read_regular(path, 5)
    assert "more than 5 bytes" in str(error.value) or path == os.devnull


def test_what_the_shell_has_opened_is_read_where_that_is_meant():
    end, other = os.pipe()
    path = f"/dev/fd/{end}"
    with open(other, "wb") as out, open(end, "rb"):
        with pytest.raises(NotRegular):
            read_regular(path, 9)
        writer = threading.Thread(target=lambda: (out.write(b"12345"), out.close()))
        writer.start()
        assert read_regular(path, 9, handed=True) == b"12345"
        writer.join()


def test_what_the_shell_has_opened_has_its_limit():
    with open("/dev/zero", "rb") as endless, pytest.raises(TooLarge, match="more than 5 bytes"):
        read_regular(f"/dev/fd/{endless.fileno()}", 5, handed=True)
    with pytest.raises(NotRegular):
        read_regular("/dev/zero", 5, handed=True)


def test_json_and_its_depth(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"a": [1]}')
    assert read_json(file, 10) == {"a": [1]}
    for text, why in (("[" * 200_000, "nested too deeply"), ("{", "Expecting"), ("\xff", "decode")):
        file.write_text(text, "latin-1")
        with pytest.raises(ValueError, match=why):
            read_json(file, 1 << 20)
    with pytest.raises(ValueError, match="nested too deeply"):
        parsed_json("[" * 200_000 + "]" * 200_000)
