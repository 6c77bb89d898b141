"""Looking after a library: what `verify` finds, and what `sweep` deletes and what it never does."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from other_process import holding
from small_documents import (
    FIRST,
    HEADER,
    SECOND,
    Killed,
    add_source,
    begin,
    files_of,
    flip,
    forge,
    lock_files,
    put,
    stopped_writer,
    write,
)

from longctx.core.common.errors import LongctxError, NotFound, StateMismatch
from longctx.core.store.confined import Confined
from longctx.core.store.shard_writer import compress_member
from longctx.core.store.upkeep import Removed, sweep
from longctx.core.store.verify import Verified, verify

pytestmark = pytest.mark.usefixtures("no_sync")


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def tree(root: Path) -> list[str]:
    """Everything in a library but its locks."""
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*"))
    return sorted(path for path in paths if not path.startswith((".lock", "locks")))


# ---- verify


def test_documents_and_checkpoints_are_verified(library):
    write(library)
    begin(library, "begun")
    found = list(verify(library))
    documents = bytes_in(library.path / "documents/book")
    assert found == [
        Verified("book", False, "ok", documents),
        Verified("begun", True, "ok", bytes_in(library.path / "unfinished/begun")),
    ]
    assert list(verify(library, "book")) == found[:1]
    assert list(verify(library, "begun")) == found[1:]
    assert lock_files(library.path) == []


def test_a_document_and_a_reading_of_the_same_name_are_both_verified(library):
    write(library)
    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.checkpoint({})
    assert [(found.unfinished, found.status) for found in verify(library, "book")] == [
        (False, "ok"),
        (True, "ok"),
    ]


def test_what_was_never_begun_is_not_verified(library, unfinished):
    unfinished.mkdir(parents=True)
    assert list(verify(library)) == []
    with pytest.raises(NotFound, match="not finished"):
        list(verify(library, "book"))
    with pytest.raises(NotFound, match="no document 'none'"):
        list(verify(library, "none"))
    with pytest.raises(NotFound, match=r"no document '\.\./book'"):
        list(verify(library, "../book"))


@pytest.mark.usefixtures("small")
def test_a_flip_in_any_block_of_any_file_is_found(library):
    write(library, shard_rows=64)
    folder = library.path / "documents/book"
    for path in sorted(folder.iterdir()):
        for position in {*range(0, path.stat().st_size, 64), path.stat().st_size - 1}:
            flip(path, position)
            (book,) = verify(library)
            assert book.status == "damaged"
            assert path.name in book.error
            flip(path, position)
    assert [found.status for found in verify(library)] == ["ok"]


@pytest.mark.usefixtures("small")
def test_blocks_that_were_read_before_are_read_again(library):
    write(library)
    document = library.document("book")
    document.verify()
    path = library.path / "documents/book/text-00000.gz"
    status = path.stat()
    flip(path, 30)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(StateMismatch, match=r"text-00000\.gz"):
        document.verify()


def test_text_that_is_not_what_the_source_was_is_found(library):
    write(library)
    folder = library.path / "documents/book"
    other = (FIRST + SECOND).replace(b"beta", b"zeta")
    put(folder, "text-00000.gz", compress_member(other))
    (book,) = verify(library)
    assert book.status == "damaged"
    assert "'two.txt'" in book.error


def test_all_are_verified_whatever_is_wrong_with_one(library):
    for name in ("a", "b", "c", "d"):
        write(library, name)
    folders = library.path / "documents"
    (folders / "a/tokens-00001.safetensors").unlink()
    forge(folders / "b", lambda data: data.update(format=1))
    (folders / "c/manifest.json").unlink()
    found = list(verify(library))
    errors = [document.error for document in found]
    assert [document.status for document in found] == ["damaged"] * 3 + ["ok"]
    assert "tokens-00001" in errors[0]
    assert "format 1" in errors[1]
    assert "manifest.json" in errors[2]


@pytest.mark.usefixtures("small")
def test_progress_reaches_the_end(library):
    write(library)
    begin(library, "begun")
    told = []
    list(verify(library, on_progress=lambda done, total: told.append((done, total))))
    total = told[-1][1]
    assert {t for _, t in told} == {total}
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == total
    text = len(FIRST + SECOND + b"begun")
    manifests = [library.document("book").manifest, *library.documents()[1:]]
    assert total == text + sum(manifest.size for manifest in manifests)


def test_what_is_written_is_told_and_the_rest_is_verified(library):
    write(library)
    begin(library, "begun")
    with holding(library.path, "exclusive", "unfinished/begun") as process:
        book, begun = verify(library)
    assert (book.status, begun.status) == ("ok", "locked")
    assert f"process {process.pid} " in begun.error
    with holding(library.path, "shared", "documents/book"):
        assert [found.status for found in verify(library, "book")] == ["ok"]


def test_a_document_that_goes_meanwhile_is_left_out(library):
    write(library, "a")
    write(library, "b")
    found = verify(library)
    assert next(found).name == "a"
    library.remove("b")
    assert list(found) == []


def test_a_document_cannot_be_removed_while_it_is_verified(library):
    write(library)
    refused = []

    def remove(done: int, total: int) -> None:
        with pytest.raises(LongctxError, match="is being read") as error:
            library.remove("book")
        refused.append(error)

    assert [found.status for found in verify(library, on_progress=remove)] == ["ok"]
    assert refused


# ---- sweep


def test_a_folder_that_others_have_put_there_stops_no_checkpoint(library, unfinished):
    (begin(library) / "@eaDir").mkdir()
    (unfinished / "@eaDir/thumbnail").touch()
    (unfinished / "stray").touch()
    with library.writer("book", HEADER, shard_rows=4) as writer:
        writer.checkpoint({})
        assert not (unfinished / "stray").exists()
    assert [item.path for item in sweep(library).removed] == []
    assert (unfinished / "@eaDir/thumbnail").exists()


@pytest.fixture
def littered(library):
    """A library with a document, a checkpoint, and everything that killed processes leave."""
    write(library)
    book, begun = library.path / "documents/book", begin(library, "begun")
    (library.path / ".tmp-library.json").write_bytes(b"12")
    for folder in (book, begun):
        (folder / ".tmp-manifest.json").write_bytes(b"123")
        (folder / "tokens-00077.safetensors").write_bytes(b"1234")
    for name in (".book.old", ".new.new", "empty"):
        (library.path / "unfinished" / name / "deeper").mkdir(parents=True)
        (library.path / "unfinished" / name / "deeper/file").write_bytes(b"12345")
    with library.writer("zero", HEADER):
        pass
    return library


GARBAGE = {
    ".tmp-library.json": 2,
    "documents/book/.tmp-manifest.json": 3,
    "documents/book/tokens-00077.safetensors": 4,
    "unfinished/begun/.tmp-manifest.json": 3,
    "unfinished/begun/tokens-00077.safetensors": 4,
    "unfinished/.book.old": 5,
    "unfinished/.new.new": 5,
    "unfinished/empty": 5,
}


def test_all_that_nothing_names_is_deleted(littered):
    book, begun = littered.path / "documents/book", littered.path / "unfinished/begun"
    zero = bytes_in(littered.path / "unfinished/zero")
    before = tree(littered.path)
    would = sweep(littered, dry_run=True)
    assert tree(littered.path) == before
    swept = sweep(littered)
    assert swept == would
    assert {item.path: item.bytes for item in swept.removed} == {
        **GARBAGE,
        "unfinished/zero": zero,
    }
    assert swept.bytes == sum(GARBAGE.values()) + zero
    assert swept.kept == []
    assert all(not (littered.path / path).exists() for path in GARBAGE)
    assert {path.name for path in littered.path.iterdir()} == {
        ".lock",
        "documents",
        "library.json",
        "locks",
        "unfinished",
    }
    assert {path.name for path in (littered.path / "unfinished").iterdir()} == {"begun"}
    assert {path.name for path in book.parent.iterdir()} == {"book"}
    assert [found.status for found in verify(littered)] == ["ok", "ok"]
    assert set(files_of(begun)) > {"manifest.json"}
    assert sweep(littered).removed == []


def test_a_tidy_library_is_left_as_it_is(library):
    write(library)
    begin(library, "begun")
    before = tree(library.path)
    assert sweep(library) == sweep(library, dry_run=True)
    assert sweep(library).removed == []
    assert tree(library.path) == before
    assert not list((library.path / "locks").iterdir())


def test_what_cannot_be_understood_is_never_touched(littered):
    documents, unfinished = littered.path / "documents", littered.path / "unfinished"
    write(littered, "other")
    forge(documents / "book", lambda data: data.update(format=1))
    flip(unfinished / "begun/manifest.json", 100)
    (unfinished / "zero/manifest.json").write_bytes(b"")
    (documents / "other/manifest.json").unlink()
    (documents / "other/.tmp-x").touch()
    kept = [documents / "book", unfinished / "begun", unfinished / "zero", documents / "other"]
    before = {folder: files_of(folder) for folder in kept}
    swept = sweep(littered)
    assert {folder: files_of(folder) for folder in kept} == before
    assert {item.path for item in swept.kept} == {
        "documents/book",
        "documents/other",
        "unfinished/begun",
        "unfinished/zero",
    }
    reasons = {item.path: item.why for item in swept.kept}
    assert "format 1" in reasons["documents/book"]
    assert "manifest.json" in reasons["unfinished/begun"]
    assert {item.path for item in swept.removed} == {
        ".tmp-library.json",
        "unfinished/.book.old",
        "unfinished/.new.new",
        "unfinished/empty",
    }


def test_what_others_use_is_never_touched(littered):
    before = tree(littered.path)
    with (
        holding(littered.path, "shared", "documents/book") as reader,
        holding(littered.path, "exclusive", "unfinished/begun"),
        holding(littered.path, "exclusive", "unfinished/book"),  # it has an .old
        holding(littered.path, "exclusive", "unfinished/new"),
        holding(littered.path, "exclusive", "unfinished/empty"),
        holding(littered.path, "exclusive", "unfinished/zero"),
    ):
        for dry_run in (True, False):
            swept = sweep(littered, dry_run)
            assert [item.path for item in swept.removed] == [".tmp-library.json"]
            assert len(swept.kept) == 6
            why = {item.path: item.why for item in swept.kept}["documents/book"]
            assert f"is being read by process {reader.pid} " in why
        assert tree(littered.path) == [path for path in before if path != ".tmp-library.json"]
        assert len(lock_files(littered.path)) == 12


def test_a_document_in_use_with_nothing_to_delete_is_not_told(library):
    write(library)
    with holding(library.path, "shared", "documents/book"):
        assert sweep(library).kept == []


def test_locks_of_the_dead_are_deleted(library):
    write(library)
    with holding(library.path, "exclusive", "unfinished/gone") as dead:
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()
        (library.path / "locks/unfinished/gone/1-orphan.json").write_text("{}")
        with holding(library.path, "shared", "documents/book"):
            assert len(lock_files(library.path)) == 5
            would = sweep(library, dry_run=True)
            assert len(lock_files(library.path)) == 5
            swept = sweep(library)
            assert swept == would
            assert len(swept.removed) == 3
            assert all("locks/unfinished/gone/" in item.path for item in swept.removed)
            assert len(lock_files(library.path)) == 2
        assert not (library.path / "locks/unfinished").exists()


def test_foreign_things_are_left_alone(library):
    write(library)
    for path in ("notes.txt", "unfinished/my notes/a", "documents/book/mine/a", "unfinished/.x/a"):
        (library.path / path).parent.mkdir(exist_ok=True)
        (library.path / path).write_bytes(b"1")
    before = tree(library.path)
    assert sweep(library).removed == []
    assert tree(library.path) == before


def test_links_are_deleted_and_what_they_lead_to_stays(library, tmp_path):
    write(library)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"1")
    (library.path / "documents/book/link").symlink_to(elsewhere / "file")
    (library.path / "unfinished/linked").symlink_to(elsewhere)
    assert [item.path for item in sweep(library).removed] == [
        "documents/book/link",
        "unfinished/linked",
    ]
    assert files_of(elsewhere) == {"file": b"1"}
    assert not (library.path / "unfinished/linked").is_symlink()


def test_a_complete_document_that_waits_for_its_place_is_kept(library, unfinished):
    write(library)
    (library.path / "documents/book").rename(unfinished)
    (unfinished / "tokens-00077.safetensors").write_bytes(b"1")
    assert sweep(library).removed == [Removed("unfinished/book/tokens-00077.safetensors", 1)]
    library.document("book").verify()


def test_a_sweep_that_is_killed_leaves_nothing_that_opens(littered, monkeypatch):
    def stop(path: str, **folder) -> None:
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(Killed):
        sweep(littered)
    monkeypatch.undo()
    with littered.writer("empty", HEADER) as writer:
        assert writer.begun is None
    sweep(littered)
    assert [found.status for found in verify(littered)] == ["ok", "ok"]


def test_what_cannot_be_deleted_is_told(littered, monkeypatch):
    def refuse(path: Confined, **options) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Confined, "unlink", refuse)
    with pytest.raises(LongctxError, match="Permission denied"):
        sweep(littered)
