"""How a decode policy is named: by a user, a profile, a document; and what is refused."""

import dataclasses
from pathlib import Path

import pytest
from toys import POLICY, toy

from longctx.core.ask import gathering
from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.decode import policies as decoding
from longctx.core.decode.policies import choose
from longctx.core.engine.setup import prepare
from longctx.core.ingest.ingest import ingest
from longctx.core.model.files import ModelFiles
from longctx.core.profile import profile
from longctx.core.profile.sampling import Sampling
from longctx.core.store.library import Library
from longctx.core.store.manifest import MANIFEST


@pytest.fixture
def loud_policy(tmp_path):
    """A policy "loud+clear" with one option of every sort, decoded as dense; its options."""
    with toy(decoding, "loud_clear", POLICY, tmp_path / "toys"):
        yield decoding.load("loud+clear").Options


def test_options_are_numbers_words_and_truths(loud_policy):
    Options = loud_policy
    text = "loud+clear:budget=7, share = 1e-3,rule=alpha,loud=true"
    assert choose(text, {}) == decoding.Decoding("loud+clear", Options(7, 0.001, "alpha", True))
    assert choose("loud+clear:share=null", {}).options == Options()
    with pytest.raises(UsageError, match="share"):  # a word, and no fault of ours
        choose("loud+clear:share=" + "[" * 100_000, {})
    assert choose("loud+clear", {}).options == choose("loud+clear:", {}).options == Options()
    assert choose(None, {}).name == "dense"


def test_what_is_given_goes_before_the_profiles_options_and_those_before_the_defaults(loud_policy):
    Options = loud_policy
    ours = {"loud+clear": {"budget": 5, "rule": "alpha"}, "dense": {}}
    assert choose("loud+clear:budget=6", ours).options == Options(6, rule="alpha")
    assert choose("loud+clear", ours).options == Options(5, rule="alpha")


@pytest.mark.usefixtures("loud_policy")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nope", r"unknown decode policy 'nope'\. Known: dense, loud\+clear, quest"),
        ("loud_clear", "unknown decode policy 'loud_clear'"),
        ("loud+clear:nope=5", "unknown key 'nope'.*Known keys: budget, share, rule, loud"),
        ("loud+clear:budget", "OPTION=VALUE.*For example"),
        ("loud+clear:budget=", "OPTION=VALUE"),
        ("loud+clear:budget=many", "'many' is no int.*Correct --decode"),
        ("loud+clear:budget=[", "'\\[' is no int"),
        ("loud+clear:budget=true", "True is no int"),
        ("loud+clear:budget=1.5", "1.5 is no int"),
        ("loud+clear:share=NaN", "'NaN' is no float"),
        ("loud+clear:rule=5", "5 is no str"),
        ("loud+clear:budget=0", "budget: expected 1 or more, got 0.*Correct --decode"),
    ],
)
def test_what_is_no_policy_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        choose(text, {})


def test_a_profile_says_which_policy_is_usual_and_with_which_options():
    text = (
        "name: a\nprompt: {question: '{question}'}\n"
        "decode: recycled:stride=25\ndecoding: {quest+raas: {budget: 2048}}\n"
    )
    read = profile.load(text, "a.yaml")
    assert (read.decode, read.decoding) == ("recycled:stride=25", {"quest+raas": {"budget": 2048}})
    assert (profile.Profile("a").decode, profile.Profile("a").decoding) == (None, {})
    assert profile.parse(dataclasses.asdict(read), "again") == read
    for wrong in ("decode: 5", "decode: [dense]", "decoding: [dense]"):
        with pytest.raises(UsageError, match="cannot use 'decod"):
            profile.load(f"name: a\n{wrong}\n", "a.yaml")


@pytest.fixture
def loud_setup(loud_policy, setup_random, tmp_path):
    path = tmp_path / "loud.yaml"
    lines = "decode: loud+clear\ndecoding: {loud+clear: {budget: 5, rule: alpha}}\n"
    path.write_text(Path(setup_random.profile).read_text() + lines)
    return dataclasses.replace(setup_random, profile=str(path))


def test_the_user_goes_before_the_profile(loud_policy, loud_setup):
    Options = loud_policy
    assert prepare(loud_setup).decoding.options == Options(5, rule="alpha")
    named = dataclasses.replace(loud_setup, decode="loud+clear:budget=6")
    assert prepare(named).decoding.options == Options(6, rule="alpha")
    assert prepare(dataclasses.replace(loud_setup, decode="dense")).decoding.name == "dense"


@pytest.fixture
def book(tmp_path) -> str:
    path = tmp_path / "book.txt"
    path.write_text("the keeper wrote in his book\n" * 20)
    return str(path)


def test_each_question_may_have_its_own_policy(loud_setup, tmp_path, book):
    ingest(tmp_path / "library", [book], loud_setup)
    own = dataclasses.replace(loud_setup, profile=None)  # the document has its profile
    with Session(tmp_path / "library", None, own) as session:
        policies = [
            session.ask("who?", sampling=Sampling(max_new_tokens=2), decode=text).policy
            for text in (None, "dense", "loud+clear:budget=9")
        ]
        with pytest.raises(UsageError, match="unknown decode policy 'nope'"):
            session.ask("who?", decode="nope")
    loud = {"name": "loud+clear", "budget": 5, "share": None, "rule": "alpha", "loud": False}
    assert policies == [loud, {"name": "dense"}, {**loud, "budget": 9}]


def test_an_answer_has_the_places_that_its_policy_reserves(loud_setup, tmp_path, book):
    ingest(tmp_path / "library", [book], loud_setup)
    with Session(tmp_path / "library", None, loud_setup) as session:
        window, gather = session.engine.window, 1000
        for decode, answer, reserved in (("dense", 8, 8), ("loud+clear", 8, 16)):
            sampling = Sampling(max_new_tokens=answer)
            tokens = session.ask("who? " * 30, gather, sampling, decode=decode).tokens
            assert tokens["dropped"] > 0
            assert 1 + tokens["gathered"] + tokens["question"] + reserved == window  # 1: prefix
        said = r"of which 16 are kept for the answer.*lower --max-new-tokens.*docs/decoding\.md"
        with pytest.raises(UsageError, match=said):
            session.ask("who? " * 100, decode="loud+clear")
        with pytest.raises(UsageError, match=r"of which 0 .*Ask a shorter question\.$"):
            session.find("who? " * 100)


def test_full_attention_refuses_an_answer_that_leaves_no_room(setup_random, tmp_path, book):
    full = dataclasses.replace(setup_random, method="full")
    Path(book).write_text("the keeper wrote in his book")
    ingest(tmp_path / "library", [book], full)
    with Session(tmp_path / "library", None, setup_random) as session:
        assert session.ask("who?").answer
        for decode, answer, option in (
            ("dense", 230, "--max-new-tokens"),
            ("quest+raas", 214, "`answer_budget`"),
        ):
            with pytest.raises(LongctxError, match=f"do not fit.*Lower {option}"):
                session.ask("who?", sampling=Sampling(max_new_tokens=answer), decode=decode)


def test_raas_answers_beyond_the_window(setup_random, tmp_path, book, monkeypatch):
    monkeypatch.setattr(ModelFiles, "eos_ids", lambda self: set())
    ingest(tmp_path / "library", [book], setup_random)
    with Session(tmp_path / "library", None, setup_random) as session:
        long = Sampling(max_new_tokens=session.engine.window + 20)
        found = session.ask("who?", 32, long, decode="raas:budget=160")
        assert found.tokens["answer"] == session.engine.window + 20
        assert (found.reassigned, found.tokens["dropped"]) == (True, 0)
        assert found.held <= 160


def test_a_prompt_that_a_policy_refuses_is_not_read(setup_random, tmp_path, book, monkeypatch):
    ingest(tmp_path / "library", [book], setup_random)
    with Session(tmp_path / "library", None, setup_random) as session:
        monkeypatch.setattr(gathering, "recompute", None)
        with pytest.raises(UsageError, match=r"RaaS has . pages.*Raise `budget` to \d+ or more"):
            session.ask("who?", decode="raas:budget=80")


def test_documents_of_before_there_were_policies(setup_random, tmp_path, book):
    library = tmp_path / "library"
    ingest(library, [book], setup_random)
    manifest = Library.open(library).document("book").manifest
    assert {"decode", "decoding"} <= manifest.profile.keys()
    for key in ("decode", "decoding"):
        del manifest.profile[key]
    (library / "documents" / "book" / MANIFEST).write_text(manifest.to_json(), "utf-8")
    with Session(library, None, dataclasses.replace(setup_random, profile=None)) as session:
        assert session.ask("who?").policy == {"name": "dense"}


def test_how_answers_are_decoded_does_not_make_it_another_reading(
    loud_setup, setup_random, tmp_path, book
):
    library = tmp_path / "library"
    ingest(library, [book], setup_random)
    assert ingest(library, [book], loud_setup).status == "unchanged"
    assert Library.open(library).document("book").manifest.profile["decode"] is None
