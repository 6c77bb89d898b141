"""A file that grows is followed: appended to when it is worth it, until Ctrl-C."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.core.ask.session import Session
from longctx.core.common.errors import Locked, LongctxError, UsageError
from longctx.core.ingest.follow import PAUSE, follow
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job, Observer
from longctx.core.store import places
from longctx.core.store.library import Library

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture(autouse=True)
def no_sync(monkeypatch) -> None:
    """No power fails here, and waiting for the disk is most of the time."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(TEXT[:500])
    return path


def script(*events: Callable[[], object] | None) -> Callable[[float], None]:
    """A wait in which these things happen, one each time; Ctrl-C at the end."""
    waiting = [*events]

    def wait(seconds: float) -> None:
        if not waiting:
            raise KeyboardInterrupt
        event = waiting.pop(0)
        if event:
            event()

    return wait


def grow(log: Path, end: int) -> Callable[[], object]:
    def write() -> None:
        with log.open("ab") as file:
            file.write(TEXT[log.stat().st_size : end])

    return write


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def test_what_fills_a_chunk_is_read_at_once_and_less_after_a_pause(
    tmp_path, library, log, setup_random
):
    sizes = []
    quiet = [None] * int(PAUSE)

    def note(done) -> None:
        sizes.append(done.bytes)

    wait = script(None, grow(log, 900), grow(log, 910), *quiet, grow(log, 1400))
    done = follow(Job(library, [str(log)], setup_random, "app"), Observer(done=note), wait=wait)
    assert sizes == [500, 900, 910, 1400]
    assert done.bytes == 1400
    ingest(tmp_path / "whole", [str(log)], setup_random)
    assert files(library) == files(tmp_path / "whole")


def test_ctrl_c_while_it_is_read_keeps_the_last_whole_state(library, log, setup_random):
    def interrupted(progress) -> None:
        if progress.processed > 900:
            raise KeyboardInterrupt

    wait = script(grow(log, 800), grow(log, 1900))
    job = Job(library, [str(log)], setup_random, "app")
    done = follow(job, Observer(interrupted), wait=wait)
    assert done.bytes == 800
    with Session(library, "app", setup_random) as session:
        assert session.find("boat").tokens["document"] == done.tokens


def test_a_document_that_is_there_is_gone_on_with(library, log, setup_random):
    first = ingest(library, [str(log)], setup_random)
    grow(log, 900)()
    done = follow(Job(library, [str(log)], setup_random, "app"), wait=script())
    assert done.bytes == 900
    assert 0 < done.reused_tokens <= first.tokens


@pytest.mark.parametrize("how", ["cut", "rotated", "rewritten"])
def test_a_rotated_log_is_told(library, log, setup_random, how):
    def change() -> None:
        if how == "cut":
            log.write_bytes(TEXT[:100])
        elif how == "rewritten":
            log.write_bytes(b"X" * 2000)
        else:
            log.rename(log.with_suffix(".1"))

    def come() -> None:
        log.write_bytes(TEXT[900:1700])

    with pytest.raises(UsageError, match=r"does not begin any more.*rotated.*--replace"):
        follow(Job(library, [str(log)], setup_random, "app"), wait=script(change, None, come, None))
    assert Library.open(library).document("app").manifest.sources[0].size == 500


@pytest.mark.usefixtures("never_waits")
def test_a_pipe_in_its_place_is_not_read(library, log, setup_random, is_opened):
    def exchange() -> None:
        log.unlink()
        os.mkfifo(log)

    def look() -> None:
        assert not is_opened(log)
        log.unlink()
        log.write_bytes(TEXT[:1700])

    wait = script(exchange, None, None, look, None)
    done = follow(Job(library, [str(log)], setup_random, "app"), wait=wait)
    assert done.bytes == 1700


def test_readers_are_waited_for(library, log, setup_random, monkeypatch):
    monkeypatch.setattr(places, "PATIENCE", 0.0)
    ingest(library, [str(log)], setup_random)
    reader, told = Session(library, "app", setup_random), []
    wait = script(grow(log, 1200), None, reader.close)
    done = follow(
        Job(library, [str(log)], setup_random, "app"), Observer(waits=told.append), wait=wait
    )
    assert done.bytes == 1200
    assert told
    assert all(isinstance(why, Locked) for why in told)


def test_only_a_file_can_be_followed(library, log, setup_random, tmp_path):
    for path in ("-", str(tmp_path), str(tmp_path / "none.log")):
        with pytest.raises(UsageError, match="cannot follow"):
            follow(Job(library, [path], setup_random, "app"), wait=script())


def test_first_bytes_are_waited_for(tmp_path, library, log, setup_random):
    log.write_bytes(b"")
    told = []

    def look() -> None:
        assert not list(library.glob("documents/*"))

    wait = script(look, None, grow(log, 900), grow(log, 1400))
    done = follow(
        Job(library, [str(log)], setup_random, "app"), Observer(empty=told.append), wait=wait
    )
    assert (done.bytes, told) == (1400, [log])
    ingest(tmp_path / "whole", [str(log)], setup_random)
    assert files(library) == files(tmp_path / "whole")


@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_log_behind_other_text_is_waited_for(
    tmp_path, library, log, setup_random, is_there
):
    book, sizes = tmp_path / "book.txt", []
    book.write_bytes(TEXT[:600])
    log.write_bytes(b"")
    paths = [str(log)] if is_there else [str(book), str(log)]
    if is_there:
        ingest(library, [str(book)], setup_random, "app")
    wait = script(None, grow(log, 300), grow(log, 1200))
    done = follow(
        Job(library, paths, setup_random, "app"),
        Observer(done=lambda done: sizes.append((done.bytes, done.skipped))),
        wait=wait,
    )
    assert sizes == [(900, []), (1800, [])]
    assert done.sources == 2


def test_a_document_whose_log_was_emptied_is_told_at_once(library, log, setup_random):
    ingest(library, [str(log)], setup_random)
    log.write_bytes(b"")
    with pytest.raises(UsageError, match="does not begin any more"):
        follow(Job(library, [str(log)], setup_random, "app"), wait=script())


def test_a_setup_that_cannot_be_is_told_before_any_waiting(library, log, setup_random):
    log.write_bytes(b"")
    with pytest.raises(UsageError, match="magic"):
        follow(
            Job(library, [str(log)], replace(setup_random, method="magic"), "app"), wait=script()
        )


def test_an_error_ends_it(library, log, setup_random, monkeypatch):
    def full() -> None:
        grow(log, 900)()
        monkeypatch.setattr(os, "replace", refuse)

    def refuse(*args, **folders) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(LongctxError, match="No space left"):
        follow(Job(library, [str(log)], setup_random, "app"), wait=script(full))
