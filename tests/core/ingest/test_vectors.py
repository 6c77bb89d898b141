"""Passages are encoded when a document is read, as often as it grows, and told of meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_vectors import ENCODER, hashed_tables

from longctx.core.common.errors import LongctxError
from longctx.core.ingest import document_reading, vectors
from longctx.core.ingest.append import append
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import ENCODING, Job, Progress
from longctx.core.ingest.overall import Tally
from longctx.core.ingest.plan import plan
from longctx.core.ingest.vectors import Encoding, encoder_for
from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.word_files import damaged_tables

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(40)]
TEXT = "\n".join(LINES)
EVERY_CHUNK = Cadence.given(1, None)
pytestmark = pytest.mark.usefixtures("models_loaded_once", "hashed", "quick")


@pytest.fixture
def quick(monkeypatch) -> None:
    """No power fails here."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def hashed(monkeypatch) -> list[str]:
    """Hashed words take the place of the encoder; returns the devices that it is used on."""
    devices: list[str] = []

    def tables_on(device: str):
        devices.append(device)
        return hashed_tables

    monkeypatch.setattr(vectors, "encoder_now", lambda: ENCODER)
    monkeypatch.setattr(document_reading, "tables_on", tables_on)
    return devices


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


def document(library: Path, name: str = "app") -> Document:
    return Library.open(library).document(name)


def test_a_document_is_read_with_vectors_or_without(library, log, setup_random, hashed):
    log.write_text(TEXT)
    for wanted in (True, False):
        ingest(library, [str(log)], setup_random, "app", vectors=wanted, replace=True)
        found = document(library)
        assert (found.manifest.encoder, found.vector_files) == ((ENCODER, 1) if wanted else ("", 0))
    assert hashed == ["cpu"]


def test_none_are_made_unless_they_are_asked_for(library, log, setup_random):
    log.write_text(TEXT)
    ingest(library, [str(log)], setup_random, "app")
    assert not document(library).manifest.has_vectors


@pytest.mark.parametrize("wanted", [True, False])
def test_a_longer_document_is_as_the_shorter_one_was(library, log, setup_random, wanted):
    log.write_text("\n".join(LINES[:25]))
    ingest(library, [str(log)], setup_random, "app", vectors=wanted)
    log.write_text(TEXT)
    append(Job(library, [str(log)], setup_random, "app", vectors=not wanted))
    longer = files(library)
    assert document(library).manifest.has_vectors is wanted
    ingest(library, [str(log)], setup_random, "app", vectors=wanted, replace=True)
    assert longer == files(library)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_folder_is_brought_up_to_date_as_it_was_read(library, tmp_path, setup_random, wanted):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(LINES[:20]))
    paths = [str(folder)]
    ingest(library, paths, setup_random, "app", vectors=wanted, units=True)
    assert ingest(library, paths, setup_random, "app", vectors=not wanted).status == "unchanged"
    (folder / "b.txt").write_text("\n".join(LINES[20:]))
    ingest(library, paths, setup_random, "app", vectors=not wanted)
    assert document(library).manifest.has_vectors is wanted
    updated = files(library)
    ingest(library, paths, setup_random, "app", vectors=wanted, units=True, replace=True)
    assert updated == files(library)


@pytest.mark.parametrize("error", [KeyboardInterrupt, LongctxError("no room")])
def test_what_is_stopped_while_it_is_encoded_goes_on_from_its_last_checkpoint(
    library, log, setup_random, error
):
    log.write_text(TEXT)

    def stop(progress: Progress) -> None:
        if progress.phase:
            raise error

    given = {"cadence": EVERY_CHUNK, "vectors": True}
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        ingest(library, [str(log)], setup_random, "app", on_progress=stop, **given)
    assert Library.open(library).names() == []
    left = Library.open(library).document("app", partial=True).manifest
    assert (left.encoder, left.has_vectors) == (ENCODER, False)
    done = ingest(library, [str(log)], setup_random, "app", vectors=False)
    assert done.reused_tokens == left.tokens > 0
    resumed = files(library)
    assert damaged_tables(document(library), "vectors") == {}
    ingest(library, [str(log)], setup_random, "app", vectors=True, replace=True)
    alone = files(library)
    assert {n: resumed[n] for n in resumed if n != "manifest.json"} == {
        n: alone[n] for n in alone if n != "manifest.json"
    }


def test_what_is_stopped_while_it_is_encoded_and_has_no_checkpoint_leaves_nothing(
    library, log, setup_random
):
    log.write_text(TEXT)

    def stop(progress: Progress) -> None:
        if progress.phase:
            raise KeyboardInterrupt

    given = {"cadence": Cadence(None, None), "vectors": True, "on_progress": stop}
    with pytest.raises(KeyboardInterrupt):
        ingest(library, [str(log)], setup_random, "app", **given)
    assert not [*(library / "unfinished").iterdir()]


def test_its_progress_is_a_phase_with_times_of_its_own(library, log, setup_random):
    log.write_text(TEXT)
    told: list[Progress] = []
    ingest(library, [str(log)], setup_random, "app", vectors=True, on_progress=told.append)
    phases = [one.phase for one in told]
    first = phases.index(ENCODING)
    assert set(phases[:first]) == {""}
    assert set(phases[first:]) == {ENCODING}
    size = len(TEXT.encode())
    assert told[first - 1].processed == size
    begun, ended = told[first], told[-1]
    assert (begun.processed, begun.tokens, begun.left_s) == (0, 0, None)
    assert (ended.processed, ended.total, ended.left_s) == (size, size, 0)
    assert ended.tokens == document(library).manifest.tokens
    done = [one.processed for one in told[first:]]
    assert done == sorted(done)


def test_what_is_kept_of_a_shorter_document_counts_as_done(library, log, setup_random):
    log.write_text(TEXT)
    ingest(library, [str(log)], setup_random, "app", vectors=True)
    told: list[Progress] = []
    encoding = Encoding(hashed_tables, told.append, kept=7)
    assert list(encoding(document(library), 1)) == []
    assert [(one.cache, one.processed, one.kept) for one in told] == [(len(TEXT), len(TEXT), 7)]
    assert told[0].tokens_per_s == 0


def test_the_progress_of_many_goes_on_while_one_is_encoded():
    tally = Tally({"a": 100, "b": 100})
    tally.with_all("a", Progress(100, 0, 100, 40, 0, 1000))
    told = tally.with_all("a", Progress(100, 0, 10, 4, 0, 20, phase=ENCODING))
    assert (told.phase, told.overall.processed, told.overall.tokens) == (ENCODING, 100, 40)


def test_what_was_begun_decides_if_it_has_tokens(library, log, setup_random):
    log.write_text(TEXT)
    ingest(library, [str(log)], setup_random, "app")
    known = document(library).manifest
    job = Job(library, [str(log)], setup_random, vectors=True)
    assert encoder_for(job) == ENCODER
    assert encoder_for(job, known) == ""
    assert encoder_for(job, replace(known, tokens=0)) == ENCODER
    other = replace(known, encoder="an-older-one")
    assert encoder_for(replace(job, vectors=False), other) == ENCODER
    assert encoder_for(replace(job, vectors=False)) == ""


def test_their_size_is_part_of_the_plan(library, log, setup_random):
    log.write_text(TEXT)
    job = Job(library, [str(log)], setup_random, "app")
    without, planned = plan(job), plan(replace(job, vectors=True))
    more = planned.disk_bytes - without.disk_bytes
    ingest(library, [str(log)], setup_random, "app", vectors=True)
    stored = sum(s.size for s in document(library).manifest.shards if s.group == "vectors")
    assert 0.5 * stored < more < 2 * stored


def test_they_count_for_the_size_of_a_library(library, log, setup_random):
    """A reading is refused, before it is encoded, where its vectors would not fit."""
    log.write_text(TEXT * 20)
    ingest(library, [str(log)], setup_random, "app", vectors=True)
    found = document(library).manifest
    before = found.size - sum(s.size for s in found.shards if s.group == "vectors") // 2
    told: list[Progress] = []
    given = {"max_size": before, "vectors": True, "replace": True}
    with pytest.raises(LongctxError, match=r"no room|is full"):
        ingest(library.parent / "b", [str(log)], setup_random, on_progress=told.append, **given)
    assert not any(one.phase for one in told)
