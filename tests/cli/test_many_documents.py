"""`list`, `find --all` and `ask --all` over a library large enough for an index."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from word_documents import write_texts

from longctx.core.retrieve.segment import COLUMNS
from longctx.core.store.confined import Confined
from longctx.core.store.library import Library
from longctx.core.store.segments import SegmentFiles

QUERIES = ["who wrote of the boat", '"came home at dawn"', "salt", "nothing of it"]


@pytest.fixture(scope="module")
def twelve(tmp_path_factory) -> Path:
    """A library of twelve documents; not to be changed."""
    library = Library.open(tmp_path_factory.mktemp("many") / "library", create=True)
    for number in range(12):
        line = f"the keeper of lamp{number:02d} wrote that a boat came home at dawn with salt\n"
        write_texts(library, "rain and news\n" * (40 * number) + line * 3, name=f"d{number:02d}")
    return library.path


@pytest.fixture
def many(longctx, twelve, tmp_path, monkeypatch) -> Library:
    """Twelve documents, where ten are many."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return Library.open(shutil.copytree(twelve, tmp_path / "library"))


@pytest.fixture
def as_many(monkeypatch):
    """What a command prints with twelve documents taken for many, or for few."""

    def take(number: int) -> None:
        for module in ("api.asking", "store.holdings", "ask.joint_session"):
            monkeypatch.setattr(f"longctx.core.{module}.MANY", number)

    take(10)
    return take


def found(longctx, *arguments: str) -> dict:
    return json.loads(longctx("find", *arguments, "--all", "--json").stdout)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("more", [(), ("-l",), ("-e", "dawn|news")])
def test_many_are_searched_as_few_are(longctx, many, as_many, query, more):
    arguments = query, "--gather-by", "bm25", *more
    of_many, again = found(longctx, *arguments), found(longctx, *arguments)
    assert (many.path / "index" / "segments.json").exists()
    as_many(99)
    of_few = found(longctx, *arguments)
    for told in (of_many, again, of_few):
        del told["timings"], told["state"]["checked_bytes"]
    assert of_many == again == of_few
    assert len(of_few["documents"]) == 12


def test_without_gather_by_all_are_searched_by_words(longctx, many, as_many):
    done = longctx("find", "boat of lamp07", "--all")
    assert "d07: " in done.stdout.splitlines()[0]
    assert "12 documents are searched by words alone (bm25)" in done.stderr


def test_only_documents_with_passages_are_opened(longctx, many, as_many):
    found(longctx, "lamp07", "--gather-by", "bm25", "-k", "1")
    for path in many.path.glob("documents/d0[0-6]/tokens-*"):
        path.unlink()
    told = found(longctx, "keeper of lamp07", "--gather-by", "bm25", "-k", "1")
    assert [passage["document"] for passage in told["passages"]] == ["d07"]
    assert told["state"]["skipped"] == []


def test_a_damaged_document_that_has_the_best_passage_is_left_out(longctx, many, as_many):
    found(longctx, "lamp07", "--gather-by", "bm25")
    for tokens in many.path.glob("documents/d07/tokens-*"):
        tokens.unlink()
    done = longctx("find", '"lamp07"', "--all", "--gather-by", "bm25", "--json")
    told = json.loads(done.stdout)
    assert "d07" not in {passage["document"] for passage in told["passages"]}
    assert [skipped["name"] for skipped in told["state"]["skipped"]] == ["d07"]
    assert "d07 is left out" in done.stderr


def forge(many: Library, name: str, change) -> None:
    """Writes the word index anew with one of its tensors changed."""
    files = SegmentFiles(Confined(many.path))
    [kept] = files.read()
    names = ("terms", "heads", "passages", "counts", *COLUMNS)
    arrays = {name: np.array(files.open(kept).array(name)) for name in names}
    arrays[name] = change(arrays[name]).astype(arrays[name].dtype)
    files.replace([files.add(arrays, kept.documents, [kept])])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("starts", lambda starts: starts + (1 << 40)),
        ("starts", lambda starts: starts[::-1]),
        ("sources", lambda sources: sources + 1),
    ],
)
def test_a_forged_index_is_made_again(longctx, many, as_many, name, change):
    query = '"came home" with news', "--gather-by", "bm25"
    expected = found(longctx, *query)
    forge(many, name, change)
    for _ in range(2):
        told = found(longctx, *query)
        assert told["passages"] == expected["passages"]
        assert told["documents"] == expected["documents"]
        assert told["state"]["skipped"] == []
    assert (many.path / "index" / "segments.json").exists()


def test_list_reads_the_catalogue(longctx, many, as_many):
    listed = json.loads(longctx("list", "--json").stdout)
    assert (many.path / "index" / "catalogue.json").exists()
    again = json.loads(longctx("list", "--json").stdout)
    as_many(99)
    assert listed == again == json.loads(longctx("list", "--json").stdout)
    assert [told["name"] for told in listed["documents"]] == [f"d{n:02d}" for n in range(12)]
