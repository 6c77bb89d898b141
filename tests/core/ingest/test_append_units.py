"""Which documents are read file by file, and how one of them becomes longer."""

import dataclasses
import zipfile
from pathlib import Path

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.engine.setup import prepare
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.follow import follow
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job, Observer
from longctx.core.ingest.many import read_each
from longctx.core.store.library import Library

EVERY_CHUNK = Cadence.given(1, None)
pytestmark = pytest.mark.usefixtures("models_loaded_once")


class Stopped(BaseException):
    """As a kill, at a place of our choice."""


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


def text_of(name: str, lines: int) -> str:
    line = "{} {}: the keeper wrote that boat {} came home\n"
    return "".join(line.format(name, i, i * 7919 % 1000) for i in range(lines))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three files with text, one without, and an archive."""
    place = tmp_path / "code"
    place.mkdir()
    for number, name in enumerate(("a.py", "b.py", "c.py")):
        (place / name).write_text(text_of(name, 3 + 5 * number), "utf-8")
    (place / "empty.txt").write_bytes(b"")
    with zipfile.ZipFile(place / "old.zip", "w") as archive:
        archive.writestr("f.txt", text_of("f", 4))
    return place


def read(library: Path, folder: Path, setup, **options):
    return ingest(library, [str(folder)], setup, "code", **options)


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def opened(library: Path):
    return Library.open(library).document("code")


@pytest.fixture
def more(tmp_path) -> Path:
    """A folder of further files; one of them holds no text."""
    place = tmp_path / "more"
    place.mkdir()
    (place / "x.py").write_text(text_of("x", 9), "utf-8")
    (place / "y.png").write_bytes(b"\0")
    (place / "z.py").write_text(text_of("z", 2), "utf-8")
    return place


def test_what_is_appended_are_further_units(library, folder, more, setup_random, chunks):
    before = read(library, folder, setup_random)
    chunks.clear()
    job = Job(library, [str(folder), str(more)], setup_random, "code")
    done = append(job)
    assert (done.sources, done.reused_tokens) == (6, before.tokens)
    prefix = len(prepare(setup_random).prompt.prefix())
    assert sum(chunks) == done.tokens - before.tokens + 2 * prefix
    other = folder.parent / "anew"
    ingest(other, [str(folder), str(more)], setup_random, "code", units=True)
    assert files(library) == files(other)
    assert append(job).status == "unchanged"
    assert opened(library).verify() is None


def test_an_append_that_was_stopped_goes_on(library, folder, more, setup_random):
    read(library, folder, setup_random)
    job = Job(library, [str(more)], setup_random, "code", cadence=EVERY_CHUNK)
    tokens = opened(library).manifest.tokens

    def stop(progress) -> None:
        if progress.kept > tokens:
            raise Stopped

    with pytest.raises(Stopped):
        append(job, Observer(stop))
    assert opened(library).manifest.tokens == tokens
    assert append(job).reused_tokens > tokens
    other = folder.parent / "anew"
    ingest(other, [str(folder), str(more)], setup_random, "code", units=True)
    assert files(library) == files(other)


def test_a_file_that_has_changed_is_not_appended(library, folder, setup_random):
    read(library, folder, setup_random)
    before = files(library)
    with (folder / "c.py").open("a", encoding="utf-8") as file:
        file.write("one more\n")
    with pytest.raises(UsageError, match=r"read whole.*longctx ingest PATH.*--no-units"):
        append(Job(library, [str(folder / "c.py")], setup_random, "code"))
    assert files(library) == before


def test_it_is_not_followed(library, folder, setup_random):
    read(library, folder, setup_random)
    with pytest.raises(UsageError, match=r"cannot follow for 'code'.*--no-units"):
        follow(Job(library, [str(folder / "b.py")], setup_random, "code"))


# --- where nothing is said ---


def units_of(library: Path, *paths: Path, setup, **options) -> str:
    ingest(library, [str(path) for path in paths], setup, "code", **options)
    return opened(library).manifest.units


def test_folders_are_read_file_by_file(library, folder, setup_random):
    assert units_of(library / "1", folder, setup=setup_random) == "source"
    assert units_of(library / "2", folder / "a.py", folder, setup=setup_random) == "source"
    assert units_of(library / "3", folder, setup=setup_random, units=False) == "document"


def test_files_patterns_and_archives_are_one_text(library, folder, setup_random):
    assert units_of(library / "1", folder / "a.py", folder / "b.py", setup=setup_random) == (
        "document"
    )
    assert units_of(library / "2", folder / "*.py", setup=setup_random) == "document"
    assert units_of(library / "3", folder / "old.zip", setup=setup_random) == "document"


def test_folders_are_one_text_for_a_method_that_reads_them_so(library, folder, setup_random):
    h2o = dataclasses.replace(setup_random, method="h2o")
    assert units_of(library, folder, setup=h2o) == "document"


def test_what_was_begun_as_one_text_is_ended_as_one(library, folder, setup_random):
    def stop(progress) -> None:
        if progress.kept:
            raise Stopped

    with pytest.raises(Stopped):
        read(library, folder, setup_random, units=False, on_progress=stop, cadence=EVERY_CHUNK)
    assert read(library, folder, setup_random, units=None).reused_tokens
    assert opened(library).manifest.units == "document"


def test_one_text_of_what_was_read_file_by_file(library, folder, setup_random):
    read(library, folder, setup_random)
    with pytest.raises(UsageError, match=r"each of its files was read by itself.*as one text"):
        read(library, folder, setup_random, units=False)


def test_a_document_of_every_file_is_one_text(library, folder, setup_random):
    read_each(Job(library, [str(folder)], setup_random))
    store = Library.open(library)
    assert {store.document(name).manifest.units for name in store.names()} == {"document"}
