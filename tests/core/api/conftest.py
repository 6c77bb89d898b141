"""What the tests of the interface share: a library with a document, read by the random model."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import longctx

LINES = (
    "the keeper wrote in his book\nthat a boat came home at dawn\nwith salt and news of rain\n" * 9
)


@pytest.fixture(scope="session")
def random_model(model_folder: Path) -> Iterator[longctx.Model]:
    """The small random model, on the CPU."""
    profile = str(model_folder / "profile.yaml")
    with longctx.Model(
        str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1
    ) as model:
        yield model


@pytest.fixture(scope="session")
def shelf(random_model: longctx.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the documents "book" and "notes"; not to be changed."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "book.txt").write_text(LINES, "utf-8")
    (folder / "notes.txt").write_text("the keeper came home\nwith a boat of salt\n" * 5, "utf-8")
    with longctx.Library(folder / "library", random_model) as library:
        library.ingest(folder / "book.txt")
        library.ingest(folder / "notes.txt")
    return folder


@pytest.fixture
def notes() -> list[str]:
    """What the library has said."""
    return []


@pytest.fixture
def library(
    shelf: Path, tmp_path: Path, random_model: longctx.Model, notes: list[str]
) -> Iterator[longctx.Library]:
    """A copy of the shelf."""
    shutil.copytree(shelf / "library", tmp_path / "library")
    with longctx.Library(tmp_path / "library", random_model, on_note=notes.append) as library:
        yield library
