"""Documents of format 2 are asked as they are, and go on in format 3."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_documents import as_format_2, files_of, forge

from longctx.core.ask.candidates import of_names
from longctx.core.ask.session import Session
from longctx.core.common.errors import NotFound
from longctx.core.ingest.append import append
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.library import Library
from longctx.core.store.upgrade import upgrade

pytestmark = pytest.mark.usefixtures("models_loaded_once")
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home\n" for i in range(40)]


@pytest.fixture
def old(tmp_path, setup_random, monkeypatch) -> Library:
    """A library with a document of format 2, read from book.txt."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    (tmp_path / "book.txt").write_text("".join(LINES[:25]))
    ingest(tmp_path / "library", [str(tmp_path / "book.txt")], setup_random)
    as_format_2(tmp_path / "library" / "documents" / "book")
    return Library.open(tmp_path / "library")


def answers(library: Library, setup, name: str = "book") -> list[tuple]:
    with Session(library.path, name, setup) as session:
        found = [session.find("who wrote?", gather_by=by) for by in ("method", "bm25")]
    return [(p.score, p.text) for some in found for p in some.passages]


def folder(library: Library, name: str) -> Path:
    return library.path / "documents" / name


def test_an_upgrade_changes_no_answer(old, setup_random):
    before = answers(old, setup_random)
    assert [done.status for done in upgrade(old, word_tables)] == ["upgraded"]
    assert answers(old, setup_random) == before


def test_an_upgrade_gives_what_is_read_today(old, tmp_path, setup_random):
    list(upgrade(old, word_tables))
    ingest(old.path, [str(tmp_path / "book.txt")], setup_random, "today")
    assert files_of(folder(old, "book")) == files_of(folder(old, "today"))


def test_it_is_unchanged_where_it_is_read_again(old, tmp_path, setup_random):
    done = ingest(old.path, [str(tmp_path / "book.txt")], setup_random)
    assert (done.status, old.document("book").manifest.format) == ("unchanged", 2)


def test_what_is_appended_makes_format_3_of_it(old, tmp_path, setup_random):
    (tmp_path / "book.txt").write_text("".join(LINES))
    append(Job(old.path, [str(tmp_path / "book.txt")], setup_random, "book"))
    ingest(old.path, [str(tmp_path / "book.txt")], setup_random, "whole")
    assert old.document("book").manifest.format == 3
    assert files_of(folder(old, "book")) == files_of(folder(old, "whole"))


def test_what_nobody_chose_is_what_is_usual_today(old, tmp_path, setup_random):
    """Older profiles say `gather_by: method` and a `threshold` of its scores by default."""
    said = {"gather_by": "method", "threshold": 0.8}
    forge(folder(old, "book"), lambda data: data["profile"].update(said))
    usual = replace(setup_random, profile=None)

    def gathered_by() -> str:
        with Session(old.path, "book", usual) as session:
            return session.ask("who wrote?").state["gathered_by"]

    assert gathered_by() == "hybrid"
    assert [done.status for done in upgrade(old, word_tables)] == ["upgraded"]
    assert gathered_by() == "hybrid"
    done = ingest(old.path, [str(tmp_path / "book.txt")], setup_random)
    assert done.status == "unchanged"
    (tmp_path / "book.txt").write_text("".join(LINES))
    append(Job(old.path, [str(tmp_path / "book.txt")], usual, "book"))
    assert gathered_by() == "hybrid"


def test_a_title_stays_when_a_document_grows(old, tmp_path, setup_random):
    old.rename("book", "Повесть")
    (tmp_path / "book.txt").write_text("".join(LINES))
    done = append(Job(old.path, [str(tmp_path / "book.txt")], setup_random, "Повесть"))
    assert done.name == "Повесть"
    assert old.document(done.name).manifest.folder.startswith("document-")


def test_a_document_that_is_named_twice_counts_once(old):
    old.rename("book", "Повесть")
    [folder] = old.names()
    assert of_names(old, [folder, "Повесть"]).folders == {"Повесть": folder}
    with pytest.raises(NotFound, match=r"no document 'Роман'.*`longctx list` shows"):
        of_names(old, ["Роман"])
