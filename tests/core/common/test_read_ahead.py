"""Reading ahead: state and model are loaded at the same time, with the errors of one by one."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.common.read_ahead import ReadAhead
from longctx.core.common.regular_files import open_regular
from longctx.core.engine import setup
from longctx.core.ingest.ingest import ingest
from longctx.core.store.confined import Confined
from longctx.core.store.document import Document
from longctx.core.store.library import Library

WAIT = 60  # seconds until a test gives up


@pytest.fixture
def library(tmp_path, setup_random) -> Path:
    book = tmp_path / "book.txt"
    book.write_text("the keeper wrote that a boat came home\n" * 20)
    ingest(tmp_path / "library", [str(book)], setup_random)
    return tmp_path / "library"


@pytest.fixture(autouse=True)
def no_thread_outlives():
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


def damage(library: Path) -> None:
    shard = next((library / "documents" / "book").glob("memory-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def failing(error: BaseException):
    def fail(*args):
        raise error

    return fail


def test_the_snapshot_is_read_while_the_model_is_loaded(library, setup_random, monkeypatch):
    loading, was_read = threading.Event(), threading.Event()
    snapshot, load_decoder = Document.snapshot, setup.load_decoder

    def read(self, *where):
        assert loading.wait(WAIT)
        was_read.set()
        return snapshot(self, *where)

    def load(*args):
        loading.set()
        assert was_read.wait(WAIT)
        return load_decoder(*args)

    monkeypatch.setattr(Document, "snapshot", read)
    monkeypatch.setattr(setup, "load_decoder", load)
    with Session(library, None, setup_random) as session:
        assert session.ask("who wrote?").passages


def test_errors_are_those_of_one_after_the_other(library, setup_random, monkeypatch):
    monkeypatch.setattr(setup, "load_decoder", failing(LongctxError("no such layer")))
    with pytest.raises(LongctxError, match="no such layer"):
        Session(library, None, setup_random)
    damage(library)
    with pytest.raises(StateMismatch, match="memory-00000"):
        Session(library, None, setup_random)
    monkeypatch.undo()
    with pytest.raises(StateMismatch, match="memory-00000"):
        Session(library, None, setup_random)


def test_an_interruption_ends_the_thread_and_frees_the_document(library, setup_random, monkeypatch):
    monkeypatch.setattr(setup, "load_decoder", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        Session(library, None, setup_random)
    assert not [*(library / "locks").rglob("*.lock")]


def test_damaged_rows_are_told_when_they_are_used(library, setup_random):
    shard = next((library / "documents" / "book").glob("embeddings-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with (
        Session(library, None, setup_random) as session,
        pytest.raises(StateMismatch, match="embeddings-00000"),
    ):
        session.ask("who wrote?", gather_by="maxsim")


def test_warming_reads_all_of_a_documents_files(library):
    files, opened = Library(library).document("book").read_whole(), []

    class Told:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            return self.stream

        def __exit__(self, *error):
            opened.append(self.stream.tell())
            self.stream.close()

    with ReadAhead() as ahead:
        ahead.warm(files, lambda file: Told(Confined.open(file)))
        ahead.submit(lambda: None).result(WAIT)
    assert opened == [file.stat().st_size for file in files] != []


def test_warming_stops_with_its_context_and_raises_nothing(tmp_path):
    class Endless:
        reads = 0

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def readinto(self, buffer):
            Endless.reads += 1
            time.sleep(0.001)
            return Endless.reads < 1000 * WAIT

    os.mkfifo(tmp_path / "pipe")  # would wait for a writer
    (tmp_path / "file").touch()
    with ReadAhead() as ahead:
        ahead.warm([tmp_path / "missing", tmp_path, tmp_path / "pipe"], open_regular)
        assert ahead.submit(lambda: "after them").result(WAIT) == "after them"
        ahead.warm([tmp_path / "file", tmp_path / "file"], lambda file: Endless())
    assert Endless.reads < 1000 * WAIT


def test_choosing_a_document_waits_for_no_model_library(library):
    code = (
        "import sys; import longctx;"
        "from longctx.core.model.files import local_weights;"
        "library = longctx.Library(sys.argv[1]);"
        "document = library._store().document(library.document().folder);"
        "assert len(document.read_whole()) == 2 and local_weights('tiny');"
        "assert not {'torch', 'transformers', 'numpy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(library)], check=True, timeout=WAIT)
