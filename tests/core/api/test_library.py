"""A library as Python programs see it: reading into it, listing, choosing, deleting."""

import subprocess
import sys

import pytest

import longctx


def test_a_file_becomes_a_document(library, tmp_path):
    file, seen = tmp_path / "letters.txt", []
    file.write_text("a boat came home with news of rain\n" * 20, "utf-8")
    document = library.ingest(file, on_progress=seen.append)
    assert document.name == "letters"
    assert document.status == "complete"
    assert document.sources == (str(file),)
    assert document.bytes == file.stat().st_size
    assert document.ingested.tokens == document.tokens == seen[-1].tokens > 0
    assert document in library
    assert "letters" in library
    assert library["letters"] is document
    assert library.ingest(file).ingested.status == "unchanged"


def test_it_is_made_when_something_is_read_into_it(tmp_path, random_model):
    library = longctx.Library(tmp_path / "new", random_model)
    assert len(library) == 0
    assert [*library] == []
    assert not library.path.exists()
    with pytest.raises(longctx.NotFound):
        library.document()
    file = tmp_path / "a.txt"
    file.write_text("the keeper\n", "utf-8")
    library.ingest(str(file))
    assert [document.name for document in library] == ["a"]


def test_documents_are_chosen_by_name(library, notes):
    assert [document.name for document in library] == ["book", "notes"]
    assert library.document().name == "notes"
    assert notes == ["document: notes (the latest)"]
    assert "book" in library
    assert "letters" not in library
    assert 3 not in library
    with pytest.raises(longctx.NotFound, match="nearest name is 'book'"):
        library.document("boook")
    assert library.together("book", "notes").names == ("book", "notes")
    assert library.together().tokens == sum(document.tokens for document in library)
    assert library.together("book").name == library.together("book", "book").name == "book"


def test_an_open_document_is_closed_where_it_is_deleted(library, shelf):
    library["book"].ask("who came home")
    library.together().find("salt")
    library["book"].text()
    library.remove("book")
    assert [document.name for document in library] == ["notes"]
    library.remove(library["notes"])
    assert len(library) == 0


def test_a_document_that_is_asked_is_read_into(library, tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("rain and salt\n" * 9, "utf-8")
    old = library["book"]
    old.ask("who came home")
    new = library.ingest(file, replace=True)
    assert new is not old
    assert new.tokens < old.tokens
    assert new.find("keeper", gather_by="bm25").passages == []
    longer = tmp_path / "more.txt"
    longer.write_text("the keeper\n" * 9, "utf-8")
    assert library.ingest(longer, append="book").tokens > new.tokens


def test_wrong_words_are_refused(library, tmp_path):
    with pytest.raises(longctx.UsageError):
        library.ingest(tmp_path / "none.txt")
    with pytest.raises(longctx.UsageError, match="nothing to read"):
        library.ingest()
    with pytest.raises(TypeError, match="colour"):
        library.ingest(tmp_path, colour="red")
    with pytest.raises(longctx.UsageError, match="read on as it was begun"):
        library.ingest(tmp_path, append="book", replace=True)


def test_its_folder_is_the_one_of_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGCTX_LIBRARY", str(tmp_path))
    assert longctx.Library().path == tmp_path


def test_importing_it_loads_nothing():
    code = (
        "import sys, longctx; assert 'Library' in dir(longctx)\n"
        "heavy = {'torch', 'numpy', 'transformers', 'typer', 'rich', 'longctx.core'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "longctx.Library, longctx.Model, longctx.Passage, longctx.ingest, longctx.NotFound\n"
        "print(sorted({*heavy} - {'longctx.core'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[:2] == ["[]", "[]"]


def test_names_that_are_offered_are_there():
    for name in longctx.__all__:
        assert getattr(longctx, name).__doc__
    with pytest.raises(AttributeError):
        longctx.nothing  # noqa: B018
