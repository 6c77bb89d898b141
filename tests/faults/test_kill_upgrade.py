"""An upgrade or renaming that is killed at any moment leaves a whole document, and is repeated."""

import shutil
import signal
from pathlib import Path

import pytest
from sampled import sampled
from small_documents import as_format_2

from longctx.core.store.document import Document
from longctx.core.store.library import Library
from longctx.core.store.upkeep import sweep
from longctx.core.store.word_files import damaged_words

NAME, TITLE = "document-f83d61d9", "Война и мир"
STEPS = 75  # more than either has events; a test sees to it


@pytest.fixture(scope="module")
def old(reader, sources, settings, tmp_path_factory) -> Path:
    """A library of format 2."""
    library = tmp_path_factory.mktemp("old") / "library"
    done = reader(library=str(library), paths=sources, setup=settings, every=10_000)
    assert done["code"] == 0, done["said"]
    documents = library / "documents"
    documents.joinpath(*[path.name for path in documents.iterdir()]).rename(documents / "book")
    as_format_2(documents / "book")
    (library / "library.json").write_bytes(b'{\n "format": 2\n}\n')
    return library


@pytest.fixture(scope="module")
def upgraded(reader, old, settings, tmp_path_factory, documents) -> tuple[dict[str, bytes], int]:
    """What an undisturbed upgrade leaves, and how many events it has."""
    library = shutil.copytree(old, tmp_path_factory.mktemp("upgraded") / "library")
    done = reader(library=str(library), setup=settings, upgrade=True)
    assert (done["code"], done["statuses"]) == (0, ["upgraded"]), done["said"]
    return documents(library), done["events"]


@pytest.mark.parametrize("fatal", sampled(range(STEPS), 24))
def test_an_upgrade_killed_and_done_again(
    reader, old, upgraded, settings, documents, tmp_path, fatal
):
    expected, events = upgraded
    library = shutil.copytree(old, tmp_path / "library")
    killed = reader(library=str(library), setup=settings, upgrade=True, fatal=fatal)
    assert killed["code"] == (-signal.SIGKILL if fatal < events else 0)
    for folder in (library / "documents").iterdir():
        document = Document(folder)
        document.verify()
        assert document.manifest.format in (2, 3)
        assert document.manifest.has_words == (document.manifest.format == 3)
        assert damaged_words(document) == {}
    again = reader(library=str(library), setup=settings, upgrade=True)
    assert again["code"] == 0, again["said"]
    sweep(Library.open(library))  # half a file, which no manifest names
    assert documents(library) == expected
    assert Library.open(library).format == 3


def test_every_step_of_an_upgrade_was_killed(upgraded):
    assert 30 < upgraded[1] < STEPS


@pytest.mark.parametrize("fatal", sampled(range(30), 12))
def test_a_renaming_killed_and_done_again(reader, old, settings, tmp_path, fatal):
    library = shutil.copytree(old, tmp_path / "library")
    job = {"library": str(library), "setup": settings}
    job["rename"] = ["book", TITLE]
    killed = reader(**job, fatal=fatal)
    store = Library.open(library)
    [name] = store.names()
    document = store.document(name)
    document.verify()
    assert document.manifest.title in (TITLE, None if name == "book" else TITLE)
    if name == "book":
        assert killed["code"] == -signal.SIGKILL
        store.rename(*job["rename"])
    assert store.document(TITLE).manifest.folder == NAME
