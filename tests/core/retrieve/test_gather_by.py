"""Documents of every method, asked and searched by every gather source."""

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import pytest
from small_passages import small_passages

from longctx.core.ask import gathering
from longctx.core.ask.answering import Question
from longctx.core.ask.session import Session
from longctx.core.ask.ways import way_of
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.engine.choice import Setup
from longctx.core.ingest.ingest import ingest
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve import gather_by, lexical

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(60)]
for number in (54, 55, 56):  # one of them at least is not cut by the border of a passage
    LINES[number] += " past a zeppelin"
QUESTION = "which boat came past the zeppelin?"
QUERY = "home line 41 zeppelin keeper"
FEW = Sampling(max_new_tokens=3)
WAYS = {
    "reform": {},
    "reattention": {"method": "reattention"},
    "both": {"keep_kv": True},
    "full": {"method": "full"},
    "truncate": {"method": "truncate"},
    "streaming": {"method": "streaming"},
}


@pytest.fixture(scope="module", autouse=True)
def small_cuts():
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 32)
        yield


@pytest.fixture(scope="module")
def setup(model_folder) -> Setup:
    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)


@pytest.fixture(scope="module")
def library(tmp_path_factory, setup) -> Path:
    """A document for each of WAYS; the one read by `full` is short."""
    folder = tmp_path_factory.mktemp("ways")
    for name, choices in WAYS.items():
        (folder / f"{name}.txt").write_text("\n".join(LINES[52:] if name == "full" else LINES))
        changed = dataclasses.replace(setup, **choices)
        ingest(folder / "library", [str(folder / f"{name}.txt")], changed, vectors=True)
    return folder / "library"


@pytest.fixture
def opened(library, setup, tmp_path):
    """Opens a document, with more lines in the profile, and asked with a method."""
    with ExitStack() as stack:

        def open_session(name="reform", profile="", asked=None) -> Session:
            (tmp_path / "more.yaml").write_text(Path(setup.profile).read_text() + profile)
            changed = {"profile": str(tmp_path / "more.yaml"), "method": asked}
            session = Session(library, name, dataclasses.replace(setup, **changed))
            return stack.enter_context(session)

        yield open_session


def without_timings(found) -> dict:
    timed = ("timings", "tokens_per_s")
    return {key: value for key, value in found.as_dict().items() if key not in timed}


# --- what is gathered ---


@pytest.mark.parametrize("way", WAYS)
def test_what_is_usual(opened, way):
    session = opened(way)
    by = "hybrid" if way in ("reform", "both") else "method"
    usual, named = (
        without_timings(session.ask(QUESTION, sampling=FEW, gather_by=by)) for by in (None, by)
    )
    usual["state"]["checked_bytes"] = named["state"]["checked_bytes"]
    assert usual == named
    assert usual["state"]["gathered_by"] == by
    assert session.find(QUESTION).state["gathered_by"] == "hybrid"


@pytest.mark.parametrize("way", WAYS)
def test_by_bm25_the_passages_that_share_words_are_recomputed(opened, way, monkeypatch):
    session, seen = opened(way), []
    recompute = gathering.recompute
    monkeypatch.setattr(
        gathering, "recompute", lambda *given: seen.append(given[2]) or recompute(*given)
    )
    answer = session.ask(QUESTION, sampling=FEW, gather_by="bm25")
    assert "zeppelin" in answer.passages[0].text
    assert answer.tokens["answer"] > 0
    assert (answer.state["gathered_by"], answer.found) == ("bm25", "yes")
    assert len(seen) == 1  # also where it would attend to what was kept
    assert len(seen[0]) == answer.tokens["gathered"]


@pytest.mark.parametrize("way", ["truncate", "streaming"])
def test_what_cannot_be_searched_is_searched_by_words_and_not_shown_whole(opened, way):
    session = opened(way)
    for refused in (session.find, session.score):
        with pytest.raises(LongctxError, match="--gather-by bm25"):
            refused(QUESTION, gather_by="method")
    found = session.find("zeppelins")
    assert "zeppelin" in found.passages[0].text
    assert found.state["without_vectors"] == []
    half = session.engine.window // 2
    assert half - 40 < found.tokens["gathered"] <= half < found.tokens["document"]
    assert session.ask(QUESTION, sampling=FEW, gather_by="bm25").tokens["dropped"] == 0


def test_a_rare_word_is_found_in_a_long_document(opened):
    session = opened()
    assert session.document.manifest.tokens > 1000
    found = session.find("zeppelins", gather=130, gather_by="bm25").passages
    text = "\n".join(LINES)
    assert "zeppelin" in found[0].text
    assert found[0].score > 0
    for passage in found:
        assert text[passage.start : passage.end] == passage.text


def test_passages_begin_and_end_with_lines_and_stay_within_the_budget(opened):
    session = opened()
    ends = {0}
    for line in LINES:
        ends.add(max(ends) + len(line) + 1)
    for gather in (150, 200, 203):
        found = session.find(QUERY, gather, gather_by="bm25")
        assert gather / 2 < found.tokens["gathered"] <= gather
        for passage in found.passages:
            assert passage.start in ends
            assert passage.end in {*ends, *(end - 1 for end in ends)}


def test_the_beginning_is_no_part_of_the_choice(opened):
    session = opened()
    answer = session.ask(QUESTION, 40, FEW, gather_by="bm25")
    assert not any(passage.start == 0 for passage in answer.passages)


def test_without_a_shared_word_nothing_is_preferred(opened):
    session = opened()
    found = session.find("whales?", gather=70, gather_by="bm25")
    assert [(p.start, p.line, p.score) for p in found.passages] == [(0, 1, 0.0)]
    assert (found.found, found.evidence) == ("no", 0.0)
    assert session.find("the?", gather=70).found == "unsure"


def test_budgets_are_asked_at_once(opened):
    session = opened()
    for by in gather_by.names():
        at_once = session.gathered(QUERY, by, (100, 40))
        for tokens, budget in zip(at_once, (100, 40), strict=True):
            assert len(tokens) <= budget
            assert tokens.tolist() == session.gathered(QUERY, by, [budget])[0].tolist()
            assert session.find(QUERY, budget, by).tokens["gathered"] == len(tokens)


def test_a_document_inside_gather_is_answered_alike_by_all(tmp_path, setup):
    (tmp_path / "short.txt").write_text(LINES[55])
    ingest(tmp_path / "library", [str(tmp_path / "short.txt")], setup, vectors=True)
    with Session(tmp_path / "library", "short", setup) as session:
        answers = [session.ask(QUESTION, gather_by=by) for by in gather_by.names()]
    assert answers[0].tokens["gathered"] == answers[0].tokens["document"] > 32
    assert len({answer.answer for answer in answers}) == 1


def test_a_method_that_wants_all_gathers_a_number_by_words(opened):
    session = opened("full")
    assert 128 < session.document.manifest.tokens < 250
    whole = session.ask(QUESTION, sampling=FEW)
    assert whole.tokens["gathered"] == session.document.manifest.tokens
    some = session.ask(QUESTION, sampling=FEW, gather_by="bm25")
    assert 90 < some.tokens["gathered"] <= 127  # half the window, of which one is the prefix
    assert some.tokens["dropped"] == 0
    assert session.ask(QUESTION, 20, FEW, gather_by="bm25").tokens["gathered"] <= 19
    assert gathering.GATHER == 8192


def test_only_the_published_rule_keeps_the_edges(opened):
    session = opened()
    session._method.edges = (32, 32)  # its whole budget of 64
    encoded = session.engine.prompt.question(QUESTION)
    asked = Question(*encoded, answer=3, words=QUESTION)
    chosen = {}
    for by in ("method", "bm25"):
        way = way_of(session.engine, session.document, session._method, by)
        chosen[by] = way.begin(asked, lambda: None).found().tokens.tolist()
    total = session.document.manifest.tokens
    assert chosen["method"] == [*range(31), *range(total - 32, total)]
    assert 0 not in chosen["bm25"]
    assert len(chosen["bm25"]) <= 63


# --- which way it is asked ---


@pytest.mark.parametrize("way", ["reattention", "full"])
def test_without_embeddings_only_what_needs_them_is_refused(opened, way):
    session = opened(way)
    found = session.find(QUESTION, gather=100, gather_by="hybrid")
    assert any("zeppelin" in passage.text for passage in found.passages)
    assert found.state["without_vectors"] == []
    said = f"cannot gather by 'maxsim' from '{way}': method '{way}' keeps no embeddings.*bm25"
    for call in (session.ask, session.find, session.score):
        with pytest.raises(LongctxError, match=said):
            call(QUESTION, gather_by="maxsim")


def test_both_gathers_by_all(opened):
    session = opened("both")
    for by in gather_by.names():
        answer = session.ask(QUESTION, sampling=FEW, gather_by=by)
        assert (answer.state["method"], answer.state["gathered_by"]) == ("reform", by)
        assert 30 < answer.tokens["gathered"] <= 63


@pytest.mark.parametrize("way", ["reattention", "both"])
def test_attending_to_everything_and_gathering_exclude_each_other(opened, way):
    session = opened(way, asked="reattention")
    for by in ("bm25", "hybrid", "maxsim"):
        with pytest.raises(UsageError, match=rf"by '{by}' with the method 'reattention'.*--method"):
            session.ask(QUESTION, gather_by=by)
    kept = session.ask(QUESTION, sampling=FEW, gather_by="method")
    assert (kept.state["method"], kept.state["gathered_by"]) == ("reattention", "method")


def test_a_reattention_state_is_recomputed_with_the_number_of_its_profile(opened):
    session = opened("reattention")
    answer = session.ask(QUESTION, sampling=FEW, gather_by="bm25")
    assert 30 < answer.tokens["gathered"] <= 63
    assert answer.policy == {"name": "dense"}
    few = session.ask(QUESTION, 20, FEW, gather_by="bm25", decode="raas:budget=256")
    assert few.tokens["gathered"] <= 19
    assert few.policy["name"] == "raas"


def test_what_there_is_not_is_refused(opened):
    session = opened()
    for call in (session.ask, session.find, session.score):
        with pytest.raises(UsageError, match=r"cannot gather by 'nope'.*bm25"):
            call(QUESTION, gather_by="nope")


# --- what all questions share ---


def test_words_are_counted_once_for_all_questions(opened, monkeypatch):
    counted, count = [], lexical.tables_of
    monkeypatch.setattr(lexical, "tables_of", lambda *given: counted.append(1) or count(*given))
    session = opened()
    session.ask(QUESTION, sampling=FEW, gather_by="bm25")
    session.find("boat", gather_by="bm25")
    session.find(QUESTION, gather_by="hybrid")
    assert counted == [1]


def test_a_profile_says_what_is_usual(opened, setup, library, tmp_path):
    by_words = "gather_by: bm25\n"
    session = opened(profile=by_words)
    assert session.ask(QUESTION, sampling=FEW).state["gathered_by"] == "bm25"
    assert session.find(QUESTION).state["gathered_by"] == "bm25"
    assert session.find(QUESTION, gather_by="method").state["gathered_by"] == "method"
    for way in ("reattention", "full"):  # nothing is gathered there
        usual = opened(way, profile=by_words).ask(QUESTION, sampling=FEW)
        assert usual.state["gathered_by"] == "method"
    # The state is the same: it is not read anew.
    changed = dataclasses.replace(setup, profile=str(tmp_path / "more.yaml"))
    assert ingest(library, [str(library.parent / "reform.txt")], changed).status == "unchanged"
    with pytest.raises(UsageError, match="cannot gather by 'nope'"):
        opened(profile="gather_by: nope\n")
