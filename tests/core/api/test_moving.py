"""Layers on several devices: they move for a reading, and nobody is left with caches elsewhere."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import longctx
from longctx.core.api.model import running
from longctx.core.model.split import SplitDecoder

TEXT = "a boat came home with news of rain\n" * 40


@pytest.fixture
def model(model_folder: Path) -> Iterator[longctx.Model]:
    """The small random model on two devices, which are one."""
    profile, where = str(model_folder / "profile.yaml"), "cpu,cpu:0"
    with longctx.Model(
        str(model_folder), profile=profile, devices=where, dtype="fp32", threads=1
    ) as model:
        yield model


@pytest.fixture
def library(shelf: Path, tmp_path: Path, model: longctx.Model) -> Iterator[longctx.Library]:
    shutil.copytree(shelf / "library", tmp_path / "library")
    (tmp_path / "long.txt").write_text(TEXT, "utf-8")
    (tmp_path / "other.txt").write_text(TEXT, "utf-8")
    with longctx.Library(tmp_path / "library", model) as library:
        yield library


@pytest.fixture
def moves(model: longctx.Model, monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """For each time that layers move, what is open then."""
    moves, place = [], SplitDecoder._place

    def placed(decoder: SplitDecoder, places: list[str]) -> None:
        moves.append([*running(model)._held])
        place(decoder, places)

    monkeypatch.setattr(SplitDecoder, "_place", placed)
    return moves


def test_what_is_open_is_closed_before_layers_move(library, moves, tmp_path):
    first = library["book"].ask("who came home").answer
    assert not moves
    library.ingest(tmp_path / "long.txt")
    assert moves == [[]]
    assert library["book"].ask("who came home").answer == first
    library.ingest(tmp_path / "other.txt")
    assert moves == [[]]  # they are where they should be


def test_none_move_under_a_reading_that_lets_another_one_go_first(library, moves, tmp_path):
    begun, waiting = [], running(library._model(None))._turns._waiting
    how = {"method": "streaming", "replace": True}
    thread = threading.Thread(target=library.ingest, args=(tmp_path / "other.txt",), kwargs=how)

    def on_progress(state: longctx.Progress) -> None:
        if not begun:
            thread.start()
            while not waiting:
                thread.join(0.01)
        begun.append((len(moves), thread.is_alive()))

    library.ingest(tmp_path / "long.txt", on_progress=on_progress)
    thread.join()
    assert begun[0] == begun[1] == (1, True)  # two at once, and none moved for the second
    before = len(moves)
    library.ingest(tmp_path / "other.txt", method="reform", replace=True)
    library.ingest(tmp_path / "other.txt", **how)
    assert len(moves) > before


def test_none_move_for_what_a_question_reads_again(library, moves, tmp_path):
    (tmp_path / "short.txt").write_text("a boat came home", "utf-8")
    short = library.ingest(tmp_path / "short.txt")
    library.ingest(tmp_path / "other.txt", method="streaming")  # they are elsewhere then
    assert short._manifest.is_bare
    before = len(moves)
    library["book"].ask("who came home")
    library["short"].ask("who came home")
    assert len(moves) == before
