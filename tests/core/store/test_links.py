"""Links, pipes and devices in a library: no command goes through them, waits for them or deletes
what they lead to."""

import os
import shutil
import signal
import stat
from pathlib import Path

import pytest
from small_documents import FIRST, HEADER, add_source, begin, write

from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.store.library import Library
from longctx.core.store.upkeep import make_private, open_to_others, sweep
from longctx.core.store.verify import verify

pytestmark = [
    pytest.mark.usefixtures("no_sync"),
    pytest.mark.skipif(os.name == "nt", reason="links and rights of POSIX"),
]


@pytest.fixture(autouse=True)
def no_wait():
    """What waits for a pipe fails, and does not hang."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture
def home(tmp_path) -> Path:
    folder = tmp_path / "home"
    for name in ("book", "other", ".book.old"):
        (folder / name).mkdir(parents=True)
        (folder / name / "letter.txt").write_bytes(b"mine")
    for name in ("settings.json", "app.lock", "notes.txt"):
        (folder / name).write_bytes(b"{}")
        (folder / "book" / name).write_bytes(b"{}")
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """A library of two documents, to be copied."""
    library = Library.open(tmp_path_factory.mktemp("two") / "library", create=True)
    for name in ("book", "other"):
        write(library, name)
    return library.path


def all_of(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


USES = {
    "gc": lambda library: sweep(library),
    "rm": lambda library: library.remove("book"),
    "rename": lambda library: library.rename("book", "new"),
    "replace": lambda library: write(library, replace=True),
    "ingest": lambda library: write(library, "new"),
    "begin": lambda library: begin(library),
    "verify": lambda library: [*verify(library)],
    "list": lambda library: library.documents(),
    "document": lambda library: library.document("book").verify(),
    "private": lambda library: make_private(library),
}


@pytest.mark.parametrize(
    "place", ["unfinished", "documents", "locks", "documents/book", "unfinished/book", ".lock"]
)
@pytest.mark.parametrize("use", USES)
def test_no_command_leaves_the_library(two, home, tmp_path, place, use):
    library = Library.open(shutil.copytree(two, tmp_path / "library"))
    before, modes = all_of(home), {p: p.stat().st_mode for p in home.rglob("*")}
    path = library.path / place
    if path.exists():
        path.rename(library.path.parent / "was there")
    path.symlink_to(home / "notes.txt" if place == ".lock" else home)
    try:
        USES[use](library)
    except LongctxError as error:
        assert error.exit_code in (10, 11, 12, 13, 1, 2), error  # noqa: PT017 (told, whichever)
    assert all_of(home) == before
    assert {p: p.stat().st_mode for p in home.rglob("*")} == modes


def test_a_linked_document_is_told_and_its_link_can_be_removed(library, home):
    write(library)
    (library.path / "documents" / "linked").symlink_to(library.path / "documents" / "book")
    [_, linked] = library.documents()
    assert (linked.name, linked.status) == ("linked", "damaged")
    assert "is a link" in linked.report["error"]
    with pytest.raises(StateMismatch, match="is a link"):
        library.document("linked")
    assert [kept.path for kept in sweep(library).kept] == ["documents/linked"]
    assert [found.status for found in verify(library)] == ["ok", "damaged"]
    library.remove("linked")
    assert library.names() == ["book"]
    library.document("book").verify()


@pytest.mark.parametrize("name", ["manifest.json", "tokens-00000.safetensors", "text-00000.gz"])
@pytest.mark.parametrize("what", ["pipe", "link to a device", "link to itself"])
def test_no_file_of_a_document_is_waited_for(library, name, what):
    write(library)
    path = library.path / "documents" / "book" / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if what == "link to a device" else path)
    with pytest.raises(StateMismatch, match=r"no regular file|is a link"):
        library.document("book")
    assert [found.status for found in verify(library)] == ["damaged"]
    library.documents()
    sweep(library)
    library.remove("book")
    assert library.names() == []


@pytest.mark.parametrize("name", ["library.json", ".lock"])
def test_no_file_of_the_library_is_waited_for(library, name):
    write(library)
    (library.path / name).unlink()
    os.mkfifo(library.path / name)
    with pytest.raises(LongctxError):
        Library.open(library.path).remove("book")


def test_a_manifest_that_would_fill_the_memory_is_refused(library):
    write(library)
    path = library.path / "documents" / "book" / "manifest.json"
    for text in (b"[" + b"[]," * 20_000_000 + b"[]]", b" " * (1 << 26) + b"{}"):
        path.write_bytes(text)
        assert library.documents()[0].status == "damaged"


# ---- rights


def modes(library: Library) -> set[int]:
    return {stat.S_IMODE(p.stat().st_mode) for p in library.path.rglob("*") if p.is_file()}


def folder_modes(library: Library) -> set[int]:
    folders = [library.path, *(p for p in library.path.rglob("*") if p.is_dir())]
    return {stat.S_IMODE(p.stat().st_mode) for p in folders}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def filled(path: Path, **options) -> Library:
    library = Library.open(path, create=True, **options)
    write(library)
    with library.writer("begun", HEADER) as writer:
        add_source(writer, "one.txt", FIRST)
        writer.checkpoint({})
    return library


def test_a_library_is_its_owners_alone(tmp_path, umask):
    library = filled(tmp_path / "library")
    assert (folder_modes(library), modes(library)) == ({0o700}, {0o600})
    assert open_to_others(library) == []


def test_an_empty_folder_that_becomes_a_library_is_too(tmp_path, umask):
    (tmp_path / "library").mkdir(mode=0o777)
    library = filled(tmp_path / "library")
    assert (folder_modes(library), modes(library)) == ({0o700}, {0o600})


def test_a_shared_library_has_the_usual_rights(tmp_path, umask):
    library = filled(tmp_path / "library", shared=True)
    assert folder_modes(library) == {0o777 & ~umask}
    assert modes(library) == {0o666 & ~umask}


def test_the_folders_own_rights_hold_for_what_comes(tmp_path, umask):
    library = Library.open(tmp_path / "library", create=True)
    library.path.chmod(0o750)
    write(library)
    inner = library.path / "documents" / "book"
    assert stat.S_IMODE(inner.stat().st_mode) == 0o750
    assert {stat.S_IMODE(p.stat().st_mode) for p in inner.iterdir()} == {0o640}


def test_an_open_library_is_made_private(tmp_path, library):
    write(library)
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    outside.chmod(0o644)
    (library.path / "documents" / "link").symlink_to(outside)
    for path in [library.path, *library.path.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    found = open_to_others(library)
    assert found[0].path == library.path
    assert make_private(library) == len(found)
    assert (folder_modes(library), modes(library) - {0o644}) == ({0o700}, {0o600})
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert open_to_others(library) == []
