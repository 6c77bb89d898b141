"""What every gather source must do, and a toy that is one file in a folder of its own."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_passages import alike, small_passages
from sought_by_hand import Index, sought
from toys import GATHER_SOURCE, toy

from longctx.core.ask.candidates import of_names
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, StateMismatch
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.retrieve import gather_by
from longctx.core.retrieve.gather_by import GatherSource, Sought
from longctx.core.store.library import Library

NAMES = [*gather_by.names(), "twice"]
SOURCES = sorted({*NAMES} - {gather_by.METHOD})
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(30)]
LINES[20] += " past a zeppelin"
QUESTION = "which boat came past the zeppelin?"


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory):
    """The toy is a gather source for all tests here."""
    with toy(gather_by, "twice", GATHER_SOURCE, tmp_path_factory.mktemp("toys")):
        yield


# --- passages ---


def asks_for(name: str, what: str) -> bool:
    """Whether a source asks for "cosines" or "maxima" where there are some."""
    passages, asked = alike(3), []
    some = sought(passages, [1, 2, 4], torch.rand(3, 2))
    given = {what: lambda: asked.append(1) or getattr(some, what)()}
    gather_by.load(name).rank(replace(some, **given))
    return bool(asked)


@pytest.mark.parametrize("name", SOURCES)
def test_every_passage_has_a_score_and_what_fits_in_all_ways_is_best(name):
    passages = alike(5, 1, 7)
    words, best = [1.0] * 13, torch.full((13, 3), 0.1)
    words[9], best[9] = 6, 0.9
    words[2], best[4] = 3, 0.5  # others fit too, but less
    found = gather_by.load(name).rank(sought(passages, words, best))
    assert found.passages is passages
    assert found.scores.shape == (13,)
    assert np.isfinite(found.scores).all()
    assert found.scores.argmax() == 9
    assert found.words is None or (found.words >= 0).all()


@pytest.mark.parametrize("name", SOURCES)
def test_passages_that_are_alike_have_one_score(name):
    one = alike(1, 1, 1, 1)
    found = gather_by.load(name).rank(sought(one, [3.0] * 4, torch.full((4, 2), 0.4)))
    assert len({*found.scores.tolist()}) == 1


@pytest.mark.parametrize("name", SOURCES)
def test_an_empty_question_prefers_nothing(name):
    nothing = sought(alike(4, 4), [1, 2, 3, 4, 5, 6, 7, 8], torch.zeros(8, 0))
    found = gather_by.load(name).rank(replace(nothing, words=""))
    assert len(found.scores) == 8
    assert len({*found.scores.tolist()}) == 1


@pytest.mark.parametrize("name", SOURCES)
def test_without_passages_there_are_no_scores(name):
    assert gather_by.load(name).rank(sought(alike(), [], torch.zeros(0, 3))).scores.tolist() == []


@pytest.mark.parametrize("name", SOURCES)
def test_it_does_without_vectors_or_says_that_it_needs_them(name):
    assert asks_for(name, "maxima") == gather_by.embeddings(name)
    assert asks_for(name, "cosines") == (gather_by.vectors(name) != "unused")
    if gather_by.embeddings(name) or gather_by.vectors(name) == "needed":
        return
    found = gather_by.load(name).rank(Sought("who?", Index(alike(6), [0, 0, 0, 0, 0, 5])))
    assert found.scores.argmax() == 5
    assert found.meaning is None


@pytest.mark.parametrize("name", NAMES)
def test_help_texts_say_what_it_is(name):
    assert gather_by.summaries()[name]


def test_a_class_that_lacks_members_cannot_be_made():
    with pytest.raises(TypeError, match=r"Half lacks rank$"):
        type("Half", (GatherSource,), {})


# --- documents ---


@pytest.fixture(scope="module")
def setup(model_folder) -> Setup:
    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory, setup) -> Path:
    """A library with documents `a` and `b`, in passages of 32 tokens, and their texts."""
    folder = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 32)
        for name, lines in (("a", LINES), ("b", LINES[:15])):
            (folder / f"{name}.txt").write_text("\n".join(lines))
            ingest(folder / "library", [str(folder / f"{name}.txt")], setup, vectors=True)
    return folder


@pytest.fixture(scope="module")
def together(made, setup) -> JointSession:
    """Both documents."""
    with JointSession(of_names(Library.open(made / "library"), ["a", "b"]), setup) as session:
        yield session


@pytest.mark.parametrize("name", NAMES)
def test_of_several_documents_one_budget_is_filled(made, together, name):
    found = together.find(QUESTION, 300, name)
    assert found.state["gathered_by"] == name
    assert 150 < found.tokens["gathered"] <= 300
    for passage in found.passages:
        text = (made / f"{passage.document}.txt").read_text()
        assert text[passage.start : passage.end] == passage.text
    everything = together.find(QUESTION, 10_000, name)
    assert {passage.document for passage in everything.passages} == {"a", "b"}


@pytest.fixture(scope="module")
def damaged(made, setup, tmp_path_factory) -> Session:
    """Document `a`, of whose embeddings a byte has changed."""
    library = shutil.copytree(made / "library", tmp_path_factory.mktemp("damaged") / "library")
    path = library / "documents" / "a" / "embeddings-00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with Session(library, "a", setup) as session:
        yield session


@pytest.mark.parametrize("name", NAMES)
def test_damaged_rows_are_told_by_what_reads_them(damaged, name):
    if name == gather_by.METHOD or gather_by.embeddings(name):
        with pytest.raises(StateMismatch, match="embeddings-00000"):
            damaged.find(QUESTION, 100, name)
    else:
        assert "zeppelin" in damaged.find(QUESTION, 100, name).passages[0].text


@pytest.fixture(scope="module")
def plain(made, setup) -> Session:
    """A document without embeddings and vectors."""
    text, other = [str(made / "a.txt")], replace(setup, method="streaming")
    ingest(made / "library", text, other, "plain", vectors=False)
    with Session(made / "library", "plain", setup) as session:
        yield session


@pytest.mark.parametrize("name", NAMES)
def test_a_document_without_vectors_is_searched_or_refused(plain, name):
    if name == gather_by.METHOD or gather_by.embeddings(name):
        with pytest.raises(LongctxError, match=r"keeps no embeddings.*--gather-by bm25"):
            plain.find(QUESTION, 100, name)
        return
    if gather_by.vectors(name) == "needed":
        with pytest.raises(LongctxError, match=r"no vectors of the sentence encoder.*by bm25"):
            plain.find(QUESTION, 100, name)
        return
    found = plain.find(QUESTION, 100, name)
    assert "zeppelin" in found.passages[0].text
    assert found.state["without_vectors"] == []  # it was to have none
