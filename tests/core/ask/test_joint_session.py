"""Documents asked together, by a small random model: scores, prompt, budget, what is held open."""

import dataclasses
import itertools
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from small_documents import forge
from small_passages import small_passages

from longctx.core.ask import candidates, gathering, joint
from longctx.core.ask.answering import Question
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.common.errors import Locked, LongctxError, NotFound, StateMismatch, UsageError
from longctx.core.engine import setup
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import Engine
from longctx.core.ingest.ingest import ingest
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.late_interaction import Maxima
from longctx.core.store.library import Library

pytestmark = pytest.mark.usefixtures("models_loaded_once")
FEW = Sampling(max_new_tokens=3)
QUESTION = "who saw the zeppelin?"
COUNT = 20
WITH_ZEPPELIN = 13


@pytest.fixture(scope="module", autouse=True)
def small_cuts():
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 16)
        yield


@pytest.fixture(scope="module")
def made(model_folder, tmp_path_factory) -> Path:
    """Twenty short documents of which one has a rare word, and some read in other ways."""
    folder, library = tmp_path_factory.mktemp("many"), None
    profile = str(model_folder / "profile.yaml")
    usual = Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)
    library = folder / "library"
    others = {"attending": {"method": "reattention"}, "both": {"keep_kv": True}}
    others |= {"whole": {"method": "full"}}
    for number, name in enumerate([*(f"d{i:02}" for i in range(COUNT)), *others]):
        lines = [f"the keeper {number} wrote of boat {number * i % 97}" for i in range(7)]
        if number == WITH_ZEPPELIN:
            lines[3] = "a zeppelin came past the zeppelin tower"
        (folder / f"{name}.txt").write_text("\n".join(lines))
        changed = dataclasses.replace(usual, **others.get(name, {}))
        ingest(library, [str(folder / f"{name}.txt")], changed)
    return library


@pytest.fixture
def library(made, tmp_path) -> Library:
    return Library.open(shutil.copytree(made, tmp_path / "library"))


@pytest.fixture
def several(library, setup_random):
    """Opens documents together; closed at the end."""
    opened = []

    def open_session(*names: str, asked=None, **more) -> JointSession:
        chosen = candidates.of_names(library, names)
        session = JointSession(chosen, dataclasses.replace(setup_random, method=asked), **more)
        opened.append(session)
        return session

    yield open_session
    for session in opened:
        session.close()


def usual_names() -> list[str]:
    return [f"d{i:02}" for i in range(COUNT)]


# --- what is gathered and recomputed ---


def test_scores_are_each_documents_own(several, library, setup_random):
    names = ["d13", "d02", "both"]
    joint = several(*names).score(QUESTION, "method")
    single = []
    for name in names:
        with Session(library.path, name, setup_random) as session:
            single.append(session.score(QUESTION, "method"))
    assert torch.equal(joint.raw, torch.cat([scores.raw for scores in single]))
    assert torch.equal(joint.pooled, torch.cat([scores.pooled for scores in single]))


def test_the_prompt_has_each_documents_tokens_in_their_order(several, monkeypatch):
    session, seen, recompute = several("d13", "d02", "d07"), [], gathering.recompute
    monkeypatch.setattr(
        gathering, "recompute", lambda *given: seen.append(given[1:4]) or recompute(*given)
    )
    answer = session.ask(QUESTION, 160, FEW)
    prefix, gathered, question = seen[0]
    assert torch.equal(prefix, session.engine.prompt.prefix())
    assert torch.equal(question, session.engine.prompt.question(QUESTION)[0])
    assert [part["name"] for part in answer.state["asked"]] == answer.documents
    assert answer.documents == ["d13", "d02", "d07"]
    # The bytes of the passages, in the order of documents and bytes, are the bytes of the prompt.
    order = {name: number for number, name in enumerate(answer.documents)}
    in_order = sorted(answer.passages, key=lambda p: (order[p.document], p.start))
    text = "".join(passage.text for passage in in_order)
    assert session.engine.files.tokenizer.decode(gathered.tolist()) == text


def test_one_budget_is_shared(several):
    session = several("d13", "d02", "d07")
    for gather in (40, 100, 160):
        whole = session.ask(QUESTION, gather, FEW, gather_by="method")
        assert whole.tokens["gathered"] == gather - 1  # the prefix
        answer = session.ask(QUESTION, gather, FEW)
        assert gather / 2 < answer.tokens["gathered"] < gather
        for found in (whole, answer):
            parts = [part["gathered"] for part in found.state["asked"]]
            assert sum(parts) == found.tokens["gathered"]
    assert answer.tokens["document"] == sum(part["tokens"] for part in answer.state["asked"])
    usual = session.ask(QUESTION, sampling=FEW, gather_by="method")
    assert usual.tokens["gathered"] == 63  # the method's number


def test_the_published_rule_takes_the_edges_of_each_document(several, monkeypatch):
    seen, choose = [], joint.joint_tokens

    def noted(scores, count, lengths, edges):
        seen.append(edges)
        return choose(scores, count, lengths, edges)

    monkeypatch.setattr(joint, "joint_tokens", noted)
    several("d13", "d02").ask(QUESTION, 160, FEW, gather_by="method")
    assert seen == [(32, 32)]
    several("d13", "d02").ask(QUESTION, 160, FEW)
    assert seen == [(32, 32)]


def test_passages_say_what_they_are_of(several, made):
    found = several("d02", "d13").find("boat 26 tower", gather=100)
    assert {passage.document for passage in found.passages} == {"d02", "d13"}
    for passage in found.passages:
        source = (made.parent / f"{passage.document}.txt").read_bytes()
        assert passage.source.endswith(f"{passage.document}.txt")
        assert source[passage.start : passage.end].decode() == passage.text
        assert passage.line == source[: passage.start].count(b"\n") + 1
    scores = [passage.score for passage in found.passages]
    assert scores == sorted(scores, reverse=True)


def test_all_documents_inside_the_budget_are_recomputed_whole(several, made):
    found = several("d02", "d13").find(QUESTION, gather=10_000)
    assert {p.document: p.text for p in found.passages} == {
        name: (made.parent / f"{name}.txt").read_text() for name in ("d02", "d13")
    }


def test_by_words_a_word_is_as_rare_as_in_all_documents(several):
    session = several("d02", "d13", "attending", "whole", gather_by="bm25")
    answer = session.ask(QUESTION, 64, FEW, gather_by="bm25")
    assert answer.passages[0].document == "d13"
    assert "zeppelin" in answer.passages[0].text
    assert answer.state["method"] == "reform, reattention, full"
    parts = {part["name"]: part["gathered"] for part in answer.state["asked"]}
    assert parts["d13"] >= 32
    assert answer.state["without_vectors"] == []
    mixed = session.ask(QUESTION, 64, FEW, gather_by="hybrid")
    assert mixed.state["without_vectors"] == []  # none was to have any
    assert mixed.passages[0] == answer.passages[0] or "zeppelin" in mixed.passages[0].text
    with pytest.raises(LongctxError, match=r"'attending'.*no embeddings"):
        session.ask(QUESTION, gather_by="maxsim")


def test_scores_are_standardised_over_all_documents(several, library, setup_random):
    names = ["d02", "d13"]
    joint = several(*names).look(QUESTION, "maxsim").ranked
    parts = []
    for name in names:
        with Session(library.path, name, setup_random) as session:
            way = session._way(QUESTION, "maxsim")
            asked = Question(*session.engine.prompt.question(QUESTION), words=QUESTION)
            parts.append(way.passage_maxima(asked))
    together = Maxima.joined(parts).scores(joint.passages.alone())
    assert joint.meaning.tolist() == together.tolist()


# --- which can be asked ---


def test_what_attends_to_all_that_was_kept_is_asked_alone(several, monkeypatch):
    monkeypatch.setattr(setup, "load_decoder", lambda *args: pytest.fail("loaded"))
    for names, asked, said in [
        (("d02", "attending"), None, "'attending'.*'reattention'"),
        (("both", "d02"), "reattention", "'both'.*'reattention'"),
    ]:
        with pytest.raises(UsageError, match=rf"cannot ask {said}.*--gather-by hybrid"):
            several(*names, asked=asked)


def test_a_state_with_both_is_asked_the_way_that_gathers(several):
    answer = several("d02", "both").ask(QUESTION, sampling=FEW)
    assert answer.state["method"] == "reform"
    assert answer.documents == ["d02", "both"]


def test_what_keeps_nothing_to_search_by_needs_words(several):
    with pytest.raises(LongctxError, match="cannot search document 'whole'"):
        several("d02", "whole").ask(QUESTION, gather_by="method")
    found = several("d02", "whole").ask(QUESTION, sampling=FEW)
    assert found.state["gathered_by"] == "hybrid"


def test_another_model_is_refused_by_the_documents_name(library):
    forge(library.path / "documents/d05", lambda data: data["model"].update(weights="0" * 64))
    with pytest.raises(StateMismatch, match=r"'d05' cannot be asked together.* weights"):
        candidates.of_names(library, ["d01", "d05"])
    everything = candidates.of_all(library)
    assert "d05" not in everything.folders
    assert "weights" in everything.skipped["d05"]


def test_a_model_that_is_not_the_documents(several, library):
    for name in ("d01", "d05"):
        forge(library.path / "documents" / name, lambda d: d["model"].update(weights="0" * 64))
    with pytest.raises(StateMismatch, match="'d01' was read with the model"):
        several("d01", "d05")


def test_all_are_those_that_are_whole_and_the_others_are_named(library):
    (library.path / "documents/d04/manifest.json").write_text("{")
    chosen = candidates.of_all(library)
    assert [*chosen.folders] == sorted({*usual_names(), "attending", "both", "whole"} - {"d04"})
    assert list(chosen.skipped) == ["d04"]
    assert "damaged" in chosen.skipped["d04"]
    twice = candidates.of_names(library, ["d03", "d01", "d03"])
    assert [*twice.folders] == ["d03", "d01"]


def test_a_library_without_documents(tmp_path):
    with pytest.raises(NotFound, match="no document to ask"):
        candidates.of_all(Library.open(tmp_path / "empty", create=True))


# --- more documents than a question is encoded for ---


def test_the_documents_whose_words_fit_are_asked(several, monkeypatch):
    restored = []
    new_method = Engine.new_method

    def counted(self, snapshot=None, *more):
        restored.extend([] if snapshot is None else [1])
        return new_method(self, snapshot, *more)

    monkeypatch.setattr(Engine, "new_method", counted)
    session = several(*usual_names(), max_docs=3)
    found = session.find("the zeppelin past the tower", gather_by="maxsim")
    assert "d13" in found.documents
    assert len(found.documents) == len(restored) == 3
    assert found.documents == sorted(found.documents)
    assert found.state["left_out"] == COUNT - 3
    assert {passage.document for passage in found.passages} <= set(found.documents)
    assert several(*usual_names()).find(QUESTION).state["left_out"] == COUNT - 16


def test_as_many_as_allowed_are_all_asked(several, monkeypatch):
    monkeypatch.setattr(
        "longctx.core.ask.joint_session.best_documents", lambda *given: pytest.fail("chosen")
    )
    found = several("d01", "d02", "d03", max_docs=3).find(QUESTION)
    assert (found.documents, found.state["left_out"]) == (["d01", "d02", "d03"], 0)


# --- what is held ---


def test_weights_are_loaded_once_and_one_state_at_a_time(several, monkeypatch):
    loaded, alive, load, new_method = [], [], setup.load_decoder, Engine.new_method

    def restored(self, snapshot=None, *more):
        assert all(method() is None for method in alive)
        method = new_method(self, snapshot, *more)
        if snapshot is not None:
            alive.append(weakref.ref(method))
        return method

    monkeypatch.setattr(setup, "load_decoder", lambda *args: loaded.append(1) or load(*args))
    monkeypatch.setattr(Engine, "new_method", restored)
    session = several("d01", "d02", "d03")
    for _ in range(2):
        session.find(QUESTION, gather_by="maxsim")
    assert (len(loaded), len(alive)) == (1, 6)


def test_documents_that_are_asked_are_kept_from_deletion(several, library):
    session = several("d01", "d02")
    with pytest.raises(Locked, match="'d02'"):
        library.remove("d02")
    session.close()
    library.remove("d02")


def test_a_document_that_goes_is_told(several, library, setup_random):
    session = several(*usual_names(), max_docs=2)
    assert session.find(QUESTION).documents
    library.remove("d19")
    with pytest.raises(NotFound, match="'d19'"):
        session.find("boat 19")
    library.remove("attending")
    with JointSession(candidates.of_all(library), setup_random, 2) as everything:
        library.remove("d18")
        found = everything.find("the keeper of the zeppelin")
        assert [gone["name"] for gone in found.state["skipped"]] == ["d18"]
        assert "no document 'd18'" in found.state["skipped"][0]["why"]


def test_questions_after_another_are_of_their_own_documents(several):
    session = several(*usual_names(), max_docs=2)
    asked = [session.find(words).documents for words in (QUESTION, "keeper 7", QUESTION)]
    assert asked[0] == asked[2]
    assert all(len(names) == 2 for names in asked)


def test_answers_do_not_depend_on_what_was_asked_before(several):
    session = several("d01", "d13", "d02")
    first, other, again = (
        session.ask(words, sampling=FEW) for words in (QUESTION, "boat 5?", QUESTION)
    )
    assert (first.answer, first.passages) == (again.answer, again.passages)
    assert other.passages != first.passages


def test_the_order_of_documents_is_that_of_their_names_as_given(several):
    names = ["d02", "d13", "d01"]
    for order in itertools.permutations(names):
        assert several(*order).find(QUESTION, gather=60).documents == list(order)
