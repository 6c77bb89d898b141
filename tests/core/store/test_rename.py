"""Giving a document another name: one renaming of its folder, and nothing is written over."""

import errno

import pytest
from small_documents import FIRST, add_source, begin, files_of, stopped_writer, write

from longctx.core.common.errors import LongctxError, NotFound, UsageError
from longctx.core.store.confined import Confined

pytestmark = pytest.mark.usefixtures("no_sync")


def test_rename(library):
    write(library)
    before = library.path / "documents" / "book"
    inodes = {path.name: path.stat().st_ino for path in before.iterdir()}
    library.rename("book", "-novel.2")
    after = library.path / "documents" / "-novel.2"
    assert {path.name: path.stat().st_ino for path in after.iterdir()} == inodes
    document = library.document("-novel.2")
    document.verify()
    assert document.manifest.name == library.latest() == "-novel.2"
    assert [manifest.name for manifest in library.documents()] == ["-novel.2"]
    with pytest.raises(NotFound, match="`longctx list` shows"):
        library.document("book")
    write(library)  # the name is free
    library.rename("-novel.2", "novel")
    assert [manifest.name for manifest in library.documents()] == ["book", "novel"]


def test_a_name_that_is_taken_is_refused(library):
    write(library)
    write(library, "other")
    begun = files_of(begin(library, "begun"))
    for taken in ("other", "begun"):
        with pytest.raises(UsageError, match=f"'{taken}' exists.*another name"):
            library.rename("book", taken)
    found = {manifest.name: manifest.status for manifest in library.documents()}
    assert found == {"begun": "reading", "book": "complete", "other": "complete"}
    assert files_of(library.path / "unfinished" / "begun") == begun


def test_a_document_has_its_own_name_already(library):
    write(library)
    with pytest.raises(UsageError, match="'book' exists"):
        library.rename("book", "book")


def test_only_what_is_complete_is_renamed(library):
    begin(library)
    with pytest.raises(NotFound, match="not finished"):
        library.rename("book", "novel")
    with pytest.raises(NotFound, match="no document 'none'"):
        library.rename("none", "novel")
    assert [path.name for path in (library.path / "unfinished").iterdir()] == ["book"]


def test_a_document_that_is_complete_but_not_in_its_place_is_renamed(library):
    write(library)
    (library.path / "documents" / "book").rename(library.path / "unfinished" / "book")
    library.rename("book", "novel")
    assert (library.path / "documents" / "novel").is_dir()
    assert not list((library.path / "unfinished").iterdir())


def test_what_was_begun_to_replace_a_document_keeps_its_name(library):
    write(library)
    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.checkpoint({})
    library.rename("book", "novel")
    assert library.document("book", partial=True).text(0, 0, 3) == b"new"
    assert library.document("novel").text(0, 0, 3) == FIRST[:3]


def test_a_failed_renaming_is_told(library, monkeypatch):
    write(library)

    def no_permission(self, target):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Confined, "replace", no_permission)
    with pytest.raises(LongctxError, match=r"cannot write.*novel.*Permission denied"):
        library.rename("book", "novel")
    monkeypatch.undo()
    library.document("book").verify()
