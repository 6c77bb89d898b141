"""The draft of a document: when it is made, made again and used, and what it leaves."""

import zipfile
from pathlib import Path

import pytest
from small_passages import small_passages
from small_vectors import ENCODER, hashed_tables

from longctx.core.common.errors import Locked, LongctxError, UsageError
from longctx.core.ingest import document_reading, draft, vectors
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import ENCODING, INDEXING, Job, Progress
from longctx.core.ingest.many import read_each
from longctx.core.sources.reader import Source
from longctx.core.store.library import Library
from longctx.core.store.shards import FOR_WORDS
from longctx.core.store.word_files import files_in

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "\n".join(LINES)
NEVER = Cadence(None, None)
pytestmark = pytest.mark.usefixtures("models_loaded_once", "no_sync", "short_too")


@pytest.fixture
def no_sync(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def short_too(monkeypatch) -> None:
    """Short documents get drafts, of several files of words."""
    monkeypatch.setattr(draft, "LEAST", 0)
    small_passages(monkeypatch, 16, 256)


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "app.log"
    path.write_text(TEXT)
    return path


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def read(library, log, setup_random):
    """Reads the log, or other files, as `ingest` takes options."""

    def run(*paths: Path, name: str = "app", into: Path = library, **more):
        named = [str(path) for path in paths or (log,)]
        return ingest(into, named, setup_random, name, cadence=NEVER, **more)

    return run


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """Who makes words: the draft, or the end of the reading."""
    made: list[str] = []
    for module in (draft, document_reading):
        tables = module.word_tables

        def counting(document, first_file=0, name=module.__name__, tables=tables):
            for table in tables(document, first_file):
                made.append(name.rpartition(".")[2])
                yield table

        monkeypatch.setattr(module, "word_tables", counting)
    return made


def stop_at(phase: str, error: BaseException):
    """Ends a reading at the first progress in a phase, once there is any in it."""

    def stop(state: Progress) -> None:
        if state.phase == phase and (phase or state.tokens):
            raise error

    return stop


def stopped(read, *paths: Path, phase: str = "", **more) -> None:
    """A reading that is stopped in its first chunk, with a draft and no checkpoint."""
    with pytest.raises(LongctxError, match="stopped here"):
        read(*paths, on_progress=stop_at(phase, LongctxError("stopped here")), **more)


def drafted(library: Path, name: str = "app"):
    return Library.open(library).document(name, needed=FOR_WORDS)


def files(library: Path) -> dict[str, bytes]:
    found = (library / "documents").rglob("*")
    return {p.name: p.read_bytes() for p in found if p.is_file() and p.suffix != ".json"}


def plain(read, monkeypatch, tmp_path, *paths: Path, **more) -> dict[str, bytes]:
    """The files of a document that is read without a draft."""
    with monkeypatch.context() as patch:
        patch.setattr(draft, "LEAST", 1 << 40)
        read(*paths, into=tmp_path / "plain", **more)
    return files(tmp_path / "plain")


def test_words_are_made_once_and_kept(read, library, counted, monkeypatch, tmp_path):
    told: list[str] = []
    read(on_progress=lambda state: told.append(state.phase))
    assert set(counted) == {"draft"}
    assert len(counted) == len(files_in(drafted(library).manifest)) > 2
    assert [*dict.fromkeys(told)] == [INDEXING, ""]
    assert not [*(library / "drafts").iterdir()]
    assert files(library) == plain(read, monkeypatch, tmp_path)


def test_a_draft_is_used_again(read, library, counted):
    stopped(read)
    made = drafted(library).manifest
    assert (made.status, made.has_words) == ("draft", True)
    counted.clear()
    read()
    assert counted == []


def test_a_changed_source_has_a_new_draft(read, library, log, counted):
    stopped(read)
    counted.clear()
    log.write_text(TEXT.replace("boat", "ship"))
    read()
    assert set(counted) == {"draft"}
    assert b"ship" in drafted(library).text(0, 0, 200)


def test_a_source_that_changes_meanwhile_has_its_words_counted_again(
    read, library, log, counted, monkeypatch, tmp_path
):
    def change(state: Progress) -> None:
        if state.phase == INDEXING and log.read_text() == TEXT:
            log.write_text(f"{TEXT}\nand a last line\n")

    read(on_progress=change)
    assert "document_reading" in counted
    whole = files(library)
    assert whole == plain(read, monkeypatch, tmp_path)


def test_a_damaged_draft_is_made_again(read, library, counted):
    stopped(read)
    [file, *_] = (library / "drafts" / "app").glob("tokens-*")
    file.write_bytes(file.read_bytes()[:-1])
    counted.clear()
    read()
    assert "draft" in counted


def test_a_damaged_file_of_its_words_is_not_taken_over(
    read, library, counted, monkeypatch, tmp_path
):
    stopped(read)
    file = library / "drafts" / "app" / "words-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    counted.clear()
    read()
    assert set(counted) == {"document_reading"}
    assert files(library) == plain(read, monkeypatch, tmp_path)


def test_one_that_is_read_is_not_replaced(read, library, log):
    stopped(read)
    log.write_text(TEXT.replace("boat", "ship"))
    with Library.open(library).reading("app", needed=FOR_WORDS), pytest.raises(Locked):
        read()
    assert read().status == "complete"


def test_one_that_is_read_while_the_document_takes_its_place_is_deleted_later(read, library):
    stopped(read)
    with Library.open(library).reading("app", needed=FOR_WORDS) as document:
        read()
        assert document.text(0, 0, 4) == b"line"
    assert drafted(library).manifest.status == "complete"
    assert [path.name for path in (library / "drafts").iterdir()] == ["app"]
    read()  # nothing to do
    assert not [*(library / "drafts").iterdir()]


def test_other_files_need_replace(read, library, tmp_path):
    stopped(read)
    other = tmp_path / "other.txt"
    other.write_text(TEXT)
    with pytest.raises(UsageError, match="begun from something else"):
        read(other)
    assert drafted(library).manifest.status == "draft"
    assert read(other, replace=True).status == "complete"


def test_what_cannot_be_read_leaves_none(read, library, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\0\1" * 600)
    with pytest.raises(LongctxError):
        read(bad)
    assert not [*library.glob("*/app")]


def test_stopped_while_words_are_indexed_it_leaves_nothing(read, library):
    with pytest.raises(KeyboardInterrupt):
        read(on_progress=stop_at(INDEXING, KeyboardInterrupt()))
    assert not [*library.glob("*/app")]


def test_of_a_folder_and_an_archive(read, library, monkeypatch, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(LINES[:20]))
    (folder / "empty.txt").touch()
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("b.txt", "\n".join(LINES[20:]))
    for units in (True, False):
        stopped(read, folder, name=f"units{units}", units=units)
        assert len(drafted(library, f"units{units}").manifest.sources) == 2
        read(folder, name=f"units{units}", units=units)
    assert not [*(library / "drafts").iterdir()]
    plain(read, monkeypatch, tmp_path, folder, name="unitsTrue", units=True)
    plain(read, monkeypatch, tmp_path, folder, name="unitsFalse", units=False)
    assert files(tmp_path / "plain") == files(library)


def test_of_each_of_many_files(library, log, setup_random, counted):
    read_each(Job(library, [str(log)], setup_random))
    assert set(counted) == {"draft"}


@pytest.fixture
def hashed(monkeypatch) -> None:
    """Hashed words take the place of the encoder."""
    monkeypatch.setattr(vectors, "encoder_now", lambda: ENCODER)
    for module in (draft, document_reading):
        monkeypatch.setattr(module, "tables_on", lambda device: hashed_tables)


@pytest.mark.usefixtures("hashed")
def test_vectors_come_before_the_encoding_and_each_file_of_them_lasts(
    read, library, monkeypatch, tmp_path
):
    made: list[int] = []

    def some(document, first_file=0, on_passages=lambda count: None):
        for number, table in enumerate(hashed_tables(document, first_file), first_file):
            if len(made) == 2:
                raise LongctxError("stopped here")
            made.append(number)
            yield table

    with monkeypatch.context() as patch:
        patch.setattr(draft, "tables_on", lambda device: some)
        with pytest.raises(LongctxError, match="stopped here"):
            read(vectors=True)
        assert len(files_in(drafted(library).manifest, "vectors")) == len(made) == 2
        assert not Library.open(library).encoded("app").vectors
        made[:] = [-1]
        patch.setattr(draft, "tables_on", lambda device: hashed_tables)
        stopped(read, vectors=True)
    assert Library.open(library).encoded("app").vectors
    told: list[str] = []
    read(vectors=True, on_progress=lambda state: told.append(state.phase))
    assert told[0] == ""
    assert files(library) == plain(read, monkeypatch, tmp_path, vectors=True)
    assert ENCODING in told[-1:]


@pytest.mark.parametrize(
    ("device", "size", "wanted"),
    [
        ("cpu", 100, False),
        ("cpu", 1 << 16, True),
        ("cuda:0", 1 << 16, False),
        ("cuda:0", 1 << 24, True),
    ],
)
def test_what_is_read_soon_has_no_draft(tmp_path, monkeypatch, device, size, wanted):
    monkeypatch.setattr(draft, "LEAST", 1 << 16)
    path = tmp_path / "book.txt"
    with path.open("wb") as file:
        file.truncate(size)
    sources = [Source("book.txt", path)]
    assert draft.wants_draft(sources, device) is wanted


def test_no_draft_of_another_text_stays_beside_a_reading(read, log, library, tmp_path, monkeypatch):
    stopped(read)
    assert drafted(library).manifest.is_draft
    other = tmp_path / "other.log"
    other.write_text("\n".join(LINES[::-1]))
    monkeypatch.setattr(draft, "LEAST", 1 << 40)
    stopped(read, other, replace=True)
    with pytest.raises(LongctxError):
        drafted(library)
    assert read(other).tokens


def test_a_draft_whose_text_is_damaged_is_given_up(read, log, library, monkeypatch):
    stopped(read, phase=ENCODING, vectors=True)
    folder = next((library / "drafts").iterdir())
    text = next(folder.glob("text-*"))
    data = bytearray(text.read_bytes())
    data[-20:] = bytes(20)
    text.write_bytes(data)
    assert read(vectors=True).tokens
    assert not folder.exists()
