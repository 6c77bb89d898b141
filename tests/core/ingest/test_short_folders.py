"""Short folders: nothing but text is kept of them, and a question reads each file again."""

import shutil
from pathlib import Path

import pytest
import torch

from longctx.core.ask.session import Session
from longctx.core.engine.opening import memory_of, saved_snapshot
from longctx.core.engine.setup import Engine, prepare
from longctx.core.ingest import plan
from longctx.core.ingest import units as units_module
from longctx.core.ingest.append import append
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.job import Job
from longctx.core.store.library import Library

QUESTION = "Which boat came home?"
SHORT = 300  # tokens
LONG = "The keeper wrote that boat 17 came home.\n" * 200
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """No power fails here; and what the random model would read again is shorter than a file."""
    monkeypatch.setattr(Engine, "can_leave_out", lambda self, method, tokens: tokens <= SHORT)
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Three files; the model reads names too, and these are short."""
    monkeypatch.chdir(tmp_path)
    place = Path("code")
    place.mkdir()
    for number in range(3):
        (place / f"{number}.py").write_text(f"boat {number} came home\n" * (1 + number), "utf-8")
    return place


def opened(library: str = "library"):
    return Library.open(Path(library)).document("code")


def read(folder: Path, setup, library: str = "library", **options):
    return ingest(Path(library), [str(folder)], setup, "code", **options)


def files(library: str) -> dict[str, bytes]:
    place = Path(library) / "documents"
    return {p.name: p.read_bytes() for p in place.rglob("*") if p.is_file()}


def require_as_anew(folder: Path, setup) -> None:
    """The state has the bytes of one reading of what is in the folder now."""
    shutil.rmtree("anew", ignore_errors=True)
    read(folder, setup, "anew")
    assert files("library") == files("anew")


def kept(folder: Path, setup, monkeypatch):
    """The document of a library that keeps its rows."""
    with monkeypatch.context() as patch:
        patch.setattr(units_module, "LEAST", 1 << 30)
        read(folder, setup, "kept")
    return opened("kept")


def test_what_is_made_again_is_what_would_be_kept(folder, setup_random, monkeypatch):
    read(folder, setup_random)
    bare, whole = opened(), kept(folder, setup_random, monkeypatch)
    assert bare.manifest.units == "source"
    assert bare.manifest.is_bare
    assert not whole.manifest.is_bare
    engine = prepare(setup_random)
    methods = [memory_of(engine, document, saved_snapshot(document)) for document in (bare, whole)]
    first, second = (method.snapshot() for method in methods)
    assert all(torch.equal(first[name], second[name]) for name in second)
    (_, again), (_, stored) = *bare.rows("embeddings"), *whole.rows("embeddings")
    assert all(torch.equal(again[name], stored[name]) for name in stored)
    for library in ("library", "kept"):
        with Session(Path(library), "code", setup_random) as asking:
            scores = asking.look(QUESTION).ranked.scores
            assert len(scores)
            if library == "library":
                wanted = scores
    assert (scores == wanted).all()


def test_edits_within_a_short_folder(folder, setup_random):
    read(folder, setup_random)
    (folder / "1.py").write_text("boat 9 sank\n", "utf-8")
    told = read(folder, setup_random)
    assert told.reused_sources == 2
    assert opened().manifest.is_bare
    require_as_anew(folder, setup_random)


def test_a_short_folder_that_grows_long_and_short_again(folder, setup_random):
    read(folder, setup_random)
    (folder / "long.py").write_text(LONG, "utf-8")
    assert read(folder, setup_random).reused_sources == 3
    assert not opened().manifest.is_bare
    require_as_anew(folder, setup_random)
    (folder / "long.py").unlink()
    assert read(folder, setup_random).reused_sources == 3
    assert opened().manifest.is_bare
    require_as_anew(folder, setup_random)


@pytest.mark.parametrize("text", ["boat 8 came home\n", LONG], ids=["short", "long"])
def test_files_that_are_appended(folder, setup_random, text):
    read(folder, setup_random)
    (folder / "new.py").write_text(text, "utf-8")
    append(Job(Path("library"), [str(folder)], setup_random, "code"))
    assert opened().manifest.is_bare == (text != LONG)
    read(folder, setup_random, "anew")
    ours, theirs = files("library"), files("anew")
    assert ours.keys() == theirs.keys()
    assert all(ours[name] == theirs[name] for name in ours if not name.endswith(".json"))


def test_a_plan_counts_what_is_kept(folder, setup_random):
    job = Job(Path("library"), [str(folder)], setup_random, "code")
    short = plan.plan(job)
    told = read(folder, setup_random)
    assert 0.8 < told.state_bytes / short.disk_bytes < 1.2
    (folder / "long.py").write_text(LONG, "utf-8")
    assert plan.plan(job).disk_bytes > 5 * short.disk_bytes
