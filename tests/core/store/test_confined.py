"""Paths inside a library: no link is followed, nothing is waited for, rights are the library's."""

import os
import socket
import stat
from pathlib import Path

import pytest

from longctx.core.store import confined
from longctx.core.store.confined import Confined

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links and rights of POSIX")


@pytest.fixture(params=["handles", "looks"], autouse=True)
def way(request, monkeypatch) -> None:
    """By handles, and as where the system has no such calls."""
    monkeypatch.setattr(confined, "BY_HANDLE", request.param == "handles")


@pytest.fixture
def home(tmp_path) -> Path:
    """A folder outside, with what nobody may touch."""
    folder = tmp_path / "home"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_bytes(b"mine")
    (folder / "inner" / "file").write_bytes(b"mine")
    return folder


@pytest.fixture
def root(tmp_path) -> Confined:
    (tmp_path / "library").mkdir(mode=0o700)
    return Confined(tmp_path / "library")


def all_of(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


TRIED = {
    "read": lambda path: path.read_bytes(99),
    "make": lambda path: (path.parent / "new").open("xb"),
    "make a folder": lambda path: (path.parent / "new").mkdir(),
    "delete": lambda path: path.unlink(),
    "delete a tree": lambda path: (path.parent / "inner").delete(),
    "delete a folder": lambda path: (path.parent / "inner").rmdir(),
    "rename": lambda path: path.replace(path.parent / "new"),
    "rename into": lambda path: (Confined(path.root) / "own").replace(path),
    "link": lambda path: path.link_to(Confined(path.root) / "new"),
    "list": lambda path: path.parent.iterdir(),
    "rights": lambda path: path.chmod(0o777),
    "sync": lambda path: path.parent.sync(),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("what", TRIED)
def test_nothing_goes_through_a_link(root, home, what, depth):
    before, rights = all_of(home), home.joinpath("file").stat().st_mode
    (root / "own").open("xb").close()
    way = root / "documents"
    if depth == 2:
        way.mkdir()
        way = way / "book"
    way.path.symlink_to(home)
    with pytest.raises(OSError, match="is a link, and none is followed"):
        TRIED[what](way / "file")
    assert all_of(home) == before
    assert home.joinpath("file").stat().st_mode == rights
    assert sorted(os.listdir(root.path)) == ["documents", "own"]


def test_nothing_is_seen_through_a_link(root, home):
    (root / "documents").path.symlink_to(home)
    inner = root / "documents" / "inner"
    assert [inner.exists(), inner.is_dir(), (inner / "file").is_file()] == [False] * 3
    assert (root / "documents").is_link()
    assert not (root / "documents").is_dir()
    assert [path.inside for path in root.tree()] == ["documents"]


def test_a_link_is_deleted_and_what_it_leads_to_stays(root, home):
    before = all_of(home)
    for way in (Confined.delete, Confined.unlink):
        (root / "linked").path.symlink_to(home)
        way(root / "linked")
        assert not (root / "linked").exists()
    (root / "linked").path.symlink_to(home / "file")
    (root / "linked").replace(root / "moved")
    assert (root / "moved").is_link()
    assert all_of(home) == before


def test_a_file_that_is_a_link_is_not_opened(root, home):
    (root / "manifest.json").path.symlink_to(home / "file")
    for mode in ("rb", "rb+"):
        with pytest.raises(OSError, match="is a link"):
            (root / "manifest.json").open(mode)
    with pytest.raises(FileExistsError):
        (root / "manifest.json").open("xb")
    assert (home / "file").read_bytes() == b"mine"


def test_the_root_may_be_a_link(tmp_path, root):
    (tmp_path / "called").symlink_to(root.root)
    file = Confined(tmp_path / "called") / "file"
    with file.open("xb") as out:
        out.write(b"1")
    assert (root / "file").read_bytes(1) == b"1"


@pytest.mark.parametrize("what", ["pipe", "socket", "folder"])
def test_only_regular_files_are_opened_and_nobody_is_waited_for(root, tmp_path, monkeypatch, what):
    if what == "pipe":
        os.mkfifo((root / "x").path)
    elif what == "socket":
        monkeypatch.chdir(root.path)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("x")
    else:
        (root / "x").mkdir()
    assert not (root / "x").is_file()
    with pytest.raises(OSError, match=r"regular file|No such device|Is a directory"):
        (root / "x").read_bytes(9)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_device_is_not_read(root):
    with pytest.raises(OSError, match="no regular file"):
        Confined(Path("/dev")).__truediv__("zero").read_bytes(9)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize(("own", "folder", "file"), [(0o700, 0o700, 0o600), (0o750, 0o750, 0o640)])
def test_what_is_made_has_the_rights_of_the_library_whatever_the_umask(
    root, mask, own, folder, file
):
    root.path.chmod(own)
    before = os.umask(mask)
    try:
        (root / "inner").mkdir()
        (root / "inner" / "file").open("xb").close()
        with (root / "inner" / "file").real() as path:
            path.write_bytes(b"as a library writes it")
    finally:
        os.umask(before)
    found = [stat.S_IMODE((root / "inner").stat().st_mode)]
    found.append(stat.S_IMODE((root / "inner" / "file").stat().st_mode))
    assert found == [folder, file]


def test_a_long_file_is_not_read(root):
    (root / "file").path.write_bytes(b"12345")
    assert (root / "file").read_bytes(5) == b"12345"
    with pytest.raises(OSError, match="over 4 bytes"):
        (root / "file").read_bytes(4)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0"])
def test_a_name_is_one_step(root, name):
    with pytest.raises(ValueError, match="no name of a file"):
        root / name


def test_what_takes_a_folders_place_meanwhile_is_not_used(root, home, monkeypatch):
    if not confined.BY_HANDLE:
        pytest.skip("without handles there is a moment between the look and the use")
    (root / "documents").mkdir()
    with (root / "documents" / "new").real() as path:
        os.rename(root.path / "documents", root.path / "away")
        (root / "documents").path.symlink_to(home)
        path.write_bytes(b"1")
    assert (root.path / "away" / "new").read_bytes() == b"1"
    assert sorted(os.listdir(home)) == ["file", "inner"]
