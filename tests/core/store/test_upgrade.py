"""Documents of format 2 are read as they are, and brought up to format 3 without reading again."""

import os

import numpy as np
import pytest
from small_documents import (
    FIRST,
    SECOND,
    as_format_2,
    begin,
    files_of,
    flip,
    forge,
    write,
)
from small_words import store_words

from longctx.core.common.errors import Locked, LongctxError, NotFound
from longctx.core.retrieve.word_tables import word_tables
from longctx.core.store.archive import export, receive
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST, Manifest
from longctx.core.store.upgrade import Upgraded, upgrade

pytestmark = pytest.mark.usefixtures("no_sync")


def old(library: Library, name: str = "book"):
    """A document, and its library, as an older longctx would have left them."""
    write(library, name)
    folder = library.path / "documents" / name
    as_format_2(folder)
    (library.path / "library.json").write_bytes(b'{\n "format": 2\n}\n')
    return folder


def upgraded(library: Library, *names: str) -> list[tuple]:
    return [(done.name, done.status, done.format) for done in upgrade(library, word_tables, names)]


def test_format_2_is_read_as_it_is(library):
    folder = old(library)
    before = files_of(folder)
    document = library.document("book")
    document.verify()
    assert (document.manifest.format, document.manifest.name) == (2, "book")
    assert (document.manifest.title, document.manifest.units) == (None, "document")
    assert document.text(0, 0, len(FIRST)) == FIRST
    assert document.word_files == 0
    text = (folder / MANIFEST).read_text()
    assert Manifest.from_json(text, "book").to_json() == Manifest.read(folder).to_json()
    assert '"units"' not in Manifest.read(folder).to_json()
    assert files_of(folder) == before
    assert Library.open(library.path).format == 2


def test_an_upgrade_writes_the_index_and_nothing_else(library):
    folder = old(library)
    before, age = files_of(folder), os.stat(folder / MANIFEST).st_mtime_ns
    assert upgraded(library) == [("book", "upgraded", 2)]
    after = files_of(folder)
    new = {name for name in after if after[name] != before.get(name)}
    assert new == {MANIFEST, "words-00000.safetensors"}
    assert before.keys() <= after.keys()
    document = library.document("book")
    document.verify()
    assert (document.manifest.format, document.manifest.title) == (3, None)
    [table] = word_tables(document)
    assert all(np.array_equal(document.words(0)[name], table[name]) for name in table)
    assert os.stat(folder / MANIFEST).st_mtime_ns == age  # it is no later than it was
    assert (library.path / "library.json").read_bytes() == b'{\n "format": 3\n}\n'


def test_it_becomes_what_would_be_written_today(library):
    folder = old(library)
    upgraded(library)
    write(library, "today")
    store_words(library.path / "documents" / "today")
    today = library.document("today").manifest.to_json()
    assert Manifest.read(folder).to_json() == today


def test_there_is_nothing_to_do_twice(library):
    folder = old(library)
    upgraded(library)
    before = {path: path.stat() for path in folder.iterdir()}
    assert upgraded(library) == [("book", "current", 3)]
    assert {path: path.stat() for path in folder.iterdir()} == before


@pytest.mark.parametrize("harm", ["flip", "cut", "missing", "none"])
def test_a_damaged_index_is_written_anew(library, harm):
    folder = old(library)
    upgraded(library)
    before, path = files_of(folder), folder / "words-00000.safetensors"
    if harm == "flip":
        flip(path, 100)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif harm == "missing":
        path.unlink()
    else:
        path.unlink()
        forge(folder, lambda data: data["shards"].pop())
    assert upgraded(library) == [("book", "upgraded", 3)]
    assert files_of(folder) == before


def test_files_of_an_index_that_are_too_many_go(library):
    folder = old(library)
    upgraded(library)
    (folder / "words-00001.safetensors").write_bytes(b"of a longer one")
    flip(folder / "words-00000.safetensors", 100)
    upgraded(library)
    assert not (folder / "words-00001.safetensors").exists()


def test_one_damaged_document_does_not_keep_the_others(library):
    for name in ("a", "b", "c"):
        old(library, name)
    (library.path / "documents/b/manifest.json").write_text("{")
    flip(library.path / "documents/c/text-00000.gz", 12)
    before = files_of(library.path / "documents/c")
    found = upgraded(library)
    assert found == [("a", "upgraded", 2), ("b", "damaged", None), ("c", "damaged", None)]
    after = files_of(library.path / "documents/c")
    assert {name: after[name] for name in before} == before
    assert library.document("c").manifest.format == 2
    assert library.format == 2  # there is one left


def test_only_what_is_named_and_the_mark_comes_last(library):
    for name in ("a", "b"):
        old(library, name)
    assert upgraded(library, "b", "b") == [("b", "upgraded", 2)]
    assert (library.document("a").manifest.format, library.format) == (2, 2)
    assert upgraded(library, "a") == [("a", "upgraded", 2)]
    assert library.format == 3


def test_nothing_is_done_where_a_name_is_wrong(library):
    old(library, "a")
    begin(library, "begun")
    for name, error in (("none", NotFound), ("begun", NotFound), ("../a", NotFound)):
        with pytest.raises(error):
            upgraded(library, "a", name)
    assert library.document("a").manifest.format == 2


def test_who_reads_is_not_disturbed(library):
    old(library)
    with library.reading("book"):
        [found] = upgrade(library, word_tables)
        assert (found.status, library.document("book").manifest.format) == ("locked", 2)
        assert "being read by process" in found.error
    assert upgraded(library) == [("book", "upgraded", 2)]
    assert isinstance(found, Upgraded)


def test_nobody_reads_meanwhile(library):
    old(library)

    def tables(document, first):
        with pytest.raises(Locked), library.reading("book"):
            pass
        with pytest.raises(Locked):
            library.remove("book")
        yield from word_tables(document, first)

    assert [done.status for done in upgrade(library, tables)] == ["upgraded"]


def test_a_full_disk_leaves_what_was_there(library, monkeypatch):
    folder = old(library)
    before = files_of(folder)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LongctxError, match="No space left"):
        upgraded(library)
    assert files_of(folder) == before
    library.document("book").verify()


def test_a_document_that_waits_for_its_place_gets_it(library):
    folder = old(library)
    (library.path / "unfinished").mkdir(exist_ok=True)
    folder.rename(library.path / "unfinished" / "book")
    assert upgraded(library) == [("book", "upgraded", 2)]
    assert folder.is_dir()


def test_a_checkpoint_of_format_2_is_gone_on_with(library):
    from small_documents import HEADER, add_source, embeddings

    folder = begin(library, data=FIRST)
    as_format_2(folder)
    with library.writer("book", HEADER, shard_rows=4) as writer:
        assert writer.begun.manifest.format == 2
        add_source(writer, "two.txt", SECOND)
        writer.append("embeddings", embeddings(3))
        writer.complete({}, words=word_tables)
    document = library.document("book")
    document.verify()
    assert (document.manifest.format, document.word_files) == (3, 1)


def test_archives_of_both_formats_are_taken_as_they_are(library, tmp_path):
    before = files_of(old(library))
    for number in (2, 3):
        archive = tmp_path / f"{number}.longctx"
        with archive.open("wb") as out:
            export(library.document("book"), out)
        with archive.open("rb") as file:
            manifest = receive(library.path, file, "file", f"copy{number}")
        assert manifest.format == number
        library.document(f"copy{number}").verify()
        upgraded(library, "book")
    assert files_of(library.path / "documents" / "copy2") == before
    assert files_of(library.path / "documents" / "copy3").keys() - before.keys() == {
        "words-00000.safetensors"
    }
