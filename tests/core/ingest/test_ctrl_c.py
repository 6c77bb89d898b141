"""Ctrl-C while a document is read: at most the chunk being read is lost, and nothing saved before.

A signal comes in a chunk of our choice, after the model has read it: a method has changed by then.
"""

import dataclasses
import functools
import signal
from pathlib import Path

import pytest
from in_chunks import in_chunk
from sampled import covering

from longctx.core.common.errors import LongctxError, UnreadableInput
from longctx.core.engine import chunk_graphs
from longctx.core.ingest import append as appending
from longctx.core.ingest import checkpoints, document_reading
from longctx.core.ingest import ingest as ingesting
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.ingest.reading import SourceReading
from longctx.core.model.adapter import Decoder
from longctx.core.store.behind import WriterBehind
from longctx.core.store.library import Library
from longctx.core.store.writer import Writer
from longctx.core.tokens.tokens import TokenStream

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(24)]
WAYS = ({}, {"method": "h2o"}, {"method": "reattention"}, {"method": "ltri"}, {"keep_kv": True})
CHUNK = 32  # of which the prefix takes one token of the first
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No chunk counts as slow, nothing is saved but at Ctrl-C, and no power fails."""
    monkeypatch.setattr(document_reading, "SLOW", 1e9)
    monkeypatch.setattr(checkpoints, "_WORTH", 1e9)
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("\n".join(LINES))
    return path


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def stop_in_chunk(number: int, how=ingest, *given, **options) -> None:
    with pytest.MonkeyPatch.context() as patch:
        in_chunk(patch, number, lambda: signal.raise_signal(signal.SIGINT), after=True)
        with pytest.raises(KeyboardInterrupt):
            how(*given, **options)


def kept(library: Path, name: str = "book") -> int:
    return Library.open(library).document(name, partial=True).manifest.tokens


@pytest.mark.parametrize(("way", "slow"), covering(WAYS, [False, True], meet=1), ids=str)
def test_what_was_read_is_kept_and_the_result_is_the_same(
    tmp_path, library, book, setup_random, monkeypatch, way, slow
):
    """Twice; a quick chunk is read to its end, and a slow one is given up."""
    setup = dataclasses.replace(setup_random, **way)
    ingest(tmp_path / "whole", [str(book)], setup)
    monkeypatch.setattr(document_reading, "SLOW", -1 if slow else 1e9)
    before = 0
    for number in (4, 3):
        told = []
        stop_in_chunk(
            number, ingest, library, [str(book)], setup, on_progress=lambda p, to=told: to.append(p)
        )
        assert told[-1].kept == kept(library) == told[-1].tokens > before
        before = told[-1].kept
    monkeypatch.undo()
    assert ingest(library, [str(book)], setup).reused_tokens == before
    assert files(library) == files(tmp_path / "whole")


@pytest.mark.parametrize("slow", [False, True])
def test_in_the_midst_of_a_replay_what_was_read_before_is_kept(
    tmp_path, library, book, setup_random, monkeypatch, slow
):
    """A replay changes in place what later chunks go on from, and so what would be saved."""
    ran = [0]

    def capture(device, work):
        def replay() -> None:
            work()
            ran[0] += 1
            if ran[0] == 4:
                signal.raise_signal(signal.SIGINT)

        return replay

    ingest(tmp_path / "whole", [str(book)], setup_random)
    monkeypatch.setattr(document_reading, "SLOW", -1 if slow else 1e9)
    with monkeypatch.context() as patch:
        patch.setattr(chunk_graphs, "capture_of", lambda decoder, method: capture)
        with pytest.raises(KeyboardInterrupt):
            ingest(library, [str(book)], setup_random)
    assert ran == [4]
    before = kept(library)
    assert (before + 1) % CHUNK == 0
    assert ingest(library, [str(book)], setup_random).reused_tokens == before
    assert files(library) == files(tmp_path / "whole")


@pytest.mark.parametrize(("slow", "chunks"), [(False, 4), (True, 3)])
@pytest.mark.parametrize("device", ["cpu", "other"])  # on another, files are written beside it
def test_at_most_the_chunk_being_read_is_lost(
    library, book, setup_random, monkeypatch, slow, chunks, device
):
    def behind(writer: Writer, *_: object) -> WriterBehind:
        return WriterBehind(writer, device)

    monkeypatch.setattr(document_reading, "SLOW", -1 if slow else 1e9)
    monkeypatch.setattr(ingesting, "WriterBehind", behind)
    stop_in_chunk(4, ingest, library, [str(book)], setup_random)
    assert kept(library) == chunks * CHUNK - 1


def test_in_the_first_chunk_nothing_is_there_to_keep_and_nothing_is_left(
    library, book, setup_random
):
    stop_in_chunk(1, ingest, library, [str(book)], setup_random)
    assert Library.open(library).documents() == []
    assert list((library / "unfinished").iterdir()) == []


def test_in_the_last_chunk_which_is_not_whole(tmp_path, library, book, setup_random):
    whole = ingest(tmp_path / "whole", [str(book)], setup_random)
    last = (whole.tokens + 1) // CHUNK + 1
    assert (whole.tokens + 1) % CHUNK
    stop_in_chunk(last, ingest, library, [str(book)], setup_random)
    assert kept(library) == (last - 1) * CHUNK - 1
    ingest(library, [str(book)], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_what_was_saved_before_stays_if_nothing_can_be_saved_now(
    library, book, setup_random, monkeypatch
):
    stop_in_chunk(4, ingest, library, [str(book)], setup_random)
    before = kept(library)

    def full(*args, **more) -> None:
        raise LongctxError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "checkpoint", full)
        stop_in_chunk(3, ingest, library, [str(book)], setup_random)
    assert kept(library) == before
    assert ingest(library, [str(book)], setup_random).reused_tokens == before


def test_while_text_is_waited_for(library, book, setup_random, monkeypatch):
    """A source gives a few pieces and then, for long, no more."""

    def taken(self, found):
        for number, ids in enumerate(real(self, found)):
            if number == 3:
                signal.raise_signal(signal.SIGINT)
            yield ids

    stream = functools.partial(TokenStream, piece=64)
    monkeypatch.setattr(ingesting, "TokenStream", stream)
    real = SourceReading._taken
    with monkeypatch.context() as patch:
        patch.setattr(SourceReading, "_taken", taken)
        with pytest.raises(KeyboardInterrupt):
            ingest(library, [str(book)], setup_random)
    before = kept(library)
    assert before >= CHUNK - 1
    assert ingest(library, [str(book)], setup_random).reused_tokens == before


def test_a_long_reading_is_saved_before_its_words_are_indexed(
    tmp_path, library, book, setup_random, monkeypatch
):
    whole = ingest(tmp_path / "whole", [str(book)], setup_random)

    def indexing(*args):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(checkpoints, "_WORTH", -1)
    with monkeypatch.context() as patch:
        patch.setattr(document_reading, "word_tables", indexing)
        with pytest.raises(KeyboardInterrupt):
            ingest(library, [str(book)], setup_random)
    assert whole.tokens - kept(library) <= CHUNK
    ingest(library, [str(book)], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_an_append_is_kept_beside_its_document(tmp_path, library, book, setup_random):
    ingest(library, [str(book)], setup_random)
    before = files(library)
    more = tmp_path / "more.txt"
    more.write_text("\n".join(reversed(LINES)))
    job = Job(library, [str(more)], setup_random, "book")
    stop_in_chunk(6, appending.append, job)
    assert files(library) == before
    stopped = [m for m in Library.open(library).documents() if m.status == "reading"]
    done = appending.append(job)
    assert [manifest.tokens for manifest in stopped] == [done.reused_tokens]
    ingest(tmp_path / "whole", [str(book), str(more)], setup_random, "book")
    assert files(library) == files(tmp_path / "whole")


# --- readings that fail ---


@pytest.mark.parametrize("content", [b"", b"\0\1\2\3" * 99], ids=["empty", "binary"])
def test_what_cannot_be_read_leaves_nothing(library, book, setup_random, content):
    book.write_bytes(content)
    with pytest.raises(UnreadableInput):
        ingest(library, [str(book)], setup_random)
    assert Library.open(library).documents() == []
    assert list((library / "unfinished").iterdir()) == []


def test_an_append_that_fails_leaves_the_document_alone(library, book, setup_random, monkeypatch):
    """The document is shorter than a chunk: its append begins with nothing."""
    book.write_text("the keeper wrote")
    ingest(library, [str(book)], setup_random)
    before = files(library)
    more = book.with_name("more.txt")
    more.write_text("a boat came home")
    monkeypatch.setattr(Decoder, "read", functools.partial(fail, LongctxError("broken")))
    with pytest.raises(LongctxError, match="broken"):
        appending.append(Job(library, [str(more)], setup_random, "book"))
    assert [m.status for m in Library.open(library).documents()] == ["complete"]
    assert files(library) == before


def fail(error: Exception, *args: object) -> None:
    raise error
