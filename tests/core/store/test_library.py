"""The library: names, one writer at a time, publication and removal."""

import os
import shutil
from contextlib import suppress

import pytest
from small_documents import (
    FIRST,
    HEADER,
    HOSTILE_NAMES,
    TOKENS,
    Killed,
    add_source,
    begin,
    files_of,
    stopped_writer,
    write,
)

from longctx.core.common.errors import NotFound, StateMismatch, UsageError
from longctx.core.store.confined import Confined
from longctx.core.store.naming import require_name

pytestmark = pytest.mark.usefixtures("no_sync")


def test_documents_and_latest(library):
    for name in ("b", "a", "c"):
        write(library, name)
    for age, name in enumerate(("a", "c", "b")):
        os.utime(library.path / "documents" / name / "manifest.json", ns=(age, age))
    assert library.latest() == "b"
    (library.path / "documents" / "a" / "manifest.json").write_text("{")
    found = {manifest.name: manifest for manifest in library.documents()}
    assert [found[name].status for name in "abc"] == ["damaged", "complete", "complete"]
    assert "manifest.json" in found["a"].report["error"]
    with pytest.raises(NotFound, match="`longctx list` shows"):
        library.document("d")


def can_be(name):
    """Whether a document may be called so, in a folder of another name."""
    with suppress(UsageError):
        return bool(require_name(name))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused(library, name):
    with pytest.raises((UsageError, NotFound), match=r"cannot be the name|no document"):
        library.document(name)
    with pytest.raises(UsageError), library.writer(name, HEADER):
        pass
    write(library)
    for refused in (
        lambda: library.remove(name),
        lambda: library.rename(name, "new"),
        *([] if can_be(name) else [lambda: library.rename("book", name)]),
    ):
        with pytest.raises(
            (UsageError, NotFound), match=r"cannot be the name|no document"
        ) as caught:
            refused()
        assert "--name" not in str(caught.value)
    assert [manifest.name for manifest in library.documents()] == ["book"]


def test_sources_may_have_any_name(library):
    path = os.fsdecode(b"caf\xe9/../\xff\n.txt")
    with library.writer("-rf", HEADER) as writer:
        add_source(writer, path, FIRST, path=path)
        writer.complete({})
    assert library.document("-rf").manifest.sources[0].path == path


def test_a_stopped_writer_changes_no_document_and_can_be_repeated(library):
    with stopped_writer(library) as writer:
        add_source(writer, "one.txt", FIRST)
    assert not list((library.path / "documents").glob("*"))
    with pytest.raises(NotFound, match="not finished"):
        library.document("book")
    assert library.documents() == []  # nothing is kept of it
    write(library)
    assert library.document("book").manifest.tokens == TOKENS
    assert not list((library.path / "unfinished").iterdir())


def test_a_reading_with_nothing_kept_is_listed_only_while_it_lasts(library):
    begin(library, "begun")
    with stopped_writer(library):
        assert [manifest.name for manifest in library.documents()] == ["begun", "book"]
    assert [manifest.name for manifest in library.documents()] == ["begun"]
    (library.path / "unfinished" / "book" / "manifest.json").unlink()  # killed still earlier
    assert [manifest.name for manifest in library.documents()] == ["begun"]
    (library.path / "unfinished" / "book" / "manifest.json").write_text("{")
    assert [manifest.status for manifest in library.documents()] == ["reading", "damaged"]


def test_replace_keeps_the_old_document_until_the_new_is_complete(library):
    write(library)
    with pytest.raises(UsageError, match="--replace"):
        write(library)
    before = files_of(library.path / "documents" / "book")
    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        writer.checkpoint({})
        assert files_of(library.path / "documents" / "book") == before
    assert files_of(library.path / "documents" / "book") == before
    with library.writer("book", HEADER, True, lambda begun: "it differs") as writer:
        add_source(writer, "new.txt", b"anew")
        writer.complete({})
    [source] = library.document("book").manifest.sources
    assert source.size == 4
    assert not list((library.path / "unfinished").iterdir())


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_between_the_last_renames_loses_no_document(library, monkeypatch, renames):
    write(library)
    real, done = Confined.replace, []

    def stop(self, target):
        if self.parent.name in ("documents", "unfinished"):
            if len(done) == renames:
                raise Killed
            done.append(target)
        return real(self, target)

    with stopped_writer(library, replace=True) as writer:
        add_source(writer, "new.txt", b"new")
        monkeypatch.setattr(Confined, "replace", stop)
        writer.complete({})
    monkeypatch.undo()
    expected = b"new" if renames else FIRST[:3]
    assert library.document("book").text(0, 0, 3) == expected
    assert library.latest() == "book"
    with pytest.raises(UsageError, match="--replace"):
        write(library)
    assert library.document("book").text(0, 0, 3) == b"new"  # the next writer ended it
    assert not list((library.path / "unfinished").iterdir())


def test_a_stopped_reading_opens_only_when_that_is_asked_for(library):
    begin(library, data=b"begun")
    with pytest.raises(NotFound, match=r"stopped after 3 tokens.*--partial"):
        library.document("book")
    document = library.document("book", partial=True)
    assert (document.manifest.status, document.text(0, 0, 5)) == ("reading", b"begun")
    with library.reading("book", partial=True) as document:
        assert document.manifest.tokens == 3
    write(library, "other")
    assert library.document("other", partial=True).manifest.status == "complete"
    with library.reading("other") as document:
        document.verify()


def test_a_reading_that_was_stopped_at_once_does_not_open(library):
    with library.writer("book", HEADER):
        pass
    for partial in (False, True):
        with pytest.raises(NotFound, match="stopped after 0 tokens") as caught:
            library.document("book", partial)
        assert "--partial" not in str(caught.value)
        with pytest.raises(NotFound, match="no document"), library.reading("none", partial):
            pass


def test_a_damaged_manifest_of_a_stopped_reading_is_told(library):
    (begin(library) / "manifest.json").write_text("{")
    with pytest.raises(StateMismatch, match=r"manifest\.json"):
        library.document("book", partial=True)


def test_what_killed_runs_left_is_cleared_away(library):
    unfinished = library.path / "unfinished"
    for name in ("book", ".book.old"):
        (unfinished / name).mkdir(parents=True)
        (unfinished / name / "kv-00000.safetensors").touch()
    with library.writer("book", HEADER):
        assert list(files_of(unfinished / "book")) == ["manifest.json"]
        assert not (unfinished / ".book.old").exists()


def test_remove(library):
    write(library)
    write(library, "other")
    library.remove("book")
    assert [manifest.name for manifest in library.documents()] == ["other"]
    with pytest.raises(NotFound, match="`longctx list` shows"):
        library.remove("book")
    with library.writer("book", HEADER):
        pass
    library.remove("book")
    assert not list((library.path / "unfinished").iterdir())


def test_a_killed_removal_leaves_nothing_that_opens(library, monkeypatch):
    write(library)

    def stop(path, **folder):
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(Killed):
        library.remove("book")
    monkeypatch.undo()
    assert library.documents() == []
    with pytest.raises(NotFound):
        library.document("book")
    library.remove("book")
    assert not list((library.path / "unfinished").iterdir())
