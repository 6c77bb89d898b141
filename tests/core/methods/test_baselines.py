"""The baselines as documents: what is asked of them and refused, and what they must miss."""

import dataclasses
from pathlib import Path

import pytest

from longctx.core.ask.answering import Question
from longctx.core.ask.session import Session
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.decode.decode import Sampling
from longctx.core.engine.choice import Setup
from longctx.core.engine.setup import prepare
from longctx.core.ingest.ingest import ingest
from longctx.core.measure.eval.tasks import needles as task
from longctx.core.measure.runner import How, ask, opened
from longctx.core.model.files import ModelFiles, open_model_files
from longctx.core.retrieve.gather_by import METHOD

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(30)]
EVICTING = ["streaming", "h2o", "tova"]
BASELINES = [*EVICTING, "truncate"]
QUESTION = "boat?"
pytestmark = pytest.mark.usefixtures("models_loaded_once")


@pytest.fixture
def library(tmp_path) -> Path:
    return tmp_path / "library"


@pytest.fixture
def book(tmp_path) -> str:
    path = tmp_path / "book.txt"
    path.write_text("\n".join(LINES))
    return str(path)


def with_method(setup: Setup, method: str) -> Setup:
    return dataclasses.replace(setup, method=method)


# --- from reading to answering ---


@pytest.mark.parametrize("method", BASELINES)
def test_sizes_are_cut_to_the_window_and_that_is_told(setup_random, method, tmp_path):
    """What a profile sets; sizes by rule fit, so that there is nothing to tell."""
    assert prepare(with_method(setup_random, method)).notes == ()
    profile = tmp_path / "profile.yaml"
    sizes = "{chunk: 512, budget: 1024, question: 256}" if method in EVICTING else "{}"
    profile.write_text(f"{Path(setup_random.profile).read_text()}  {method}: {sizes}\n")
    chosen = dataclasses.replace(setup_random, profile=str(profile))
    notes = prepare(with_method(chosen, method)).notes
    expected = [] if method == "truncate" else ["budget", "chunk", "question"]
    assert {note.split()[0] for note in notes} == {*expected}
    assert all("the model's window is 256 tokens" in note for note in notes)


@pytest.mark.parametrize("method", EVICTING)
def test_passages_are_what_an_answer_could_see(library, book, setup_random, method):
    ingest(library, [book], with_method(setup_random, method))
    with Session(library, None, setup_random) as session:
        options, total = session.engine.options, session.document.manifest.tokens
        tail = (1 + total) % options.chunk
        found = session.ask(QUESTION)
        least = options.budget + tail - 1  # 1: the prefix
        assert least <= found.tokens["gathered"] < total
        assert (found.tokens["gathered"] == least) == (method != "h2o" and method != "tova")
        assert found.tokens["dropped"] == 0
        last = max(found.passages, key=lambda passage: passage.end)
        assert last.end == len(Path(book).read_bytes())
        few = session.ask(QUESTION, gather=20)
        assert few.tokens["gathered"] == 20
        assert few.answer == found.answer


@pytest.mark.parametrize("method", EVICTING)
def test_a_long_answer_stays_within_the_budget(library, book, setup_random, method, monkeypatch):
    monkeypatch.setattr(ModelFiles, "eos_ids", lambda self: set())
    ingest(library, [book], with_method(setup_random, method))
    with Session(library, None, setup_random) as session:
        count = session.engine.window + 50
        found = session.ask(QUESTION, sampling=Sampling(max_new_tokens=count))
        assert found.tokens["answer"] == count
        most = session.engine.options.budget + 1  # with the token itself
        assert found.held == found.attended_per_step == most
        assert found.policy == {"name": "dense"}


def test_truncation_gathers_both_ends_of_any_document(library, book, setup_random):
    ingest(library, [book], with_method(setup_random, "truncate"))
    with Session(library, None, setup_random) as session:
        total, window = session.document.manifest.tokens, session.engine.window
        found = session.ask(QUESTION)
        count = found.tokens["gathered"]
        assert 1 + count + found.tokens["question"] + 8 == window  # 1: prefix, 8: answer
        assert found.tokens["dropped"] == total - count
        first, last = sorted(found.passages, key=lambda passage: passage.start)
        for gather in (None, 51):
            begun = session._way("", METHOD).begin(_question(session, gather), lambda: None)
            chosen = begun.found().tokens
            half = len(chosen) // 2
            rest = len(chosen) - half
            assert chosen.tolist() == [*range(half), *range(total - rest, total)]
        text = Path(book).read_text()
        assert text.startswith(first.text)
        assert text.endswith(last.text)
        assert session.ask(QUESTION, decode="snapkv:budget=48").attended_per_step < window / 2


def _question(session: Session, gather: int | None) -> Question:
    return Question(*session.engine.prompt.question(QUESTION), 8, gather)


# --- what is refused ---


@pytest.mark.parametrize("method", BASELINES)
def test_nothing_can_be_searched_but_words(library, book, setup_random, method):
    ingest(library, [book], with_method(setup_random, method))
    said = f"method '{method}' keeps no embeddings.*--method reform"
    with (
        Session(library, None, setup_random) as session,
        pytest.raises(LongctxError, match=said),
    ):
        session.find("keeper", gather_by="method")


@pytest.mark.parametrize("method", EVICTING)
@pytest.mark.parametrize("decode", ["recycled", "quest+raas", "quest", "raas", "snapkv"])
def test_policies_that_choose_among_everything_are_refused(
    library, book, setup_random, method, decode, monkeypatch
):
    ingest(library, [book], with_method(setup_random, method))
    with Session(library, None, setup_random) as session:
        monkeypatch.setattr(type(session.engine.decoder), "read", None)  # nothing is read first
        said = rf"cannot decode with '{decode}'.*'{method}': the policies for that are dense\."
        said = said.replace("+", r"\+")
        with pytest.raises(UsageError, match=said):
            session.ask(QUESTION, decode=decode)


@pytest.mark.parametrize("method", EVICTING)
def test_a_question_too_long_is_refused(library, book, setup_random, method):
    ingest(library, [book], with_method(setup_random, method))
    with (
        Session(library, None, setup_random) as session,
        pytest.raises(UsageError, match=r"too long: it may have \d+ tokens"),
    ):
        session.ask("boat? " * 100)


def test_the_bundled_models_sizes_fill_its_window():
    for method in EVICTING:
        engine = prepare(Setup(method=method, device="cpu"))
        assert (engine.options.budget, engine.options.longest) == (2560, 4096)
        assert engine.notes == ()
    assert prepare(Setup(method="truncate", device="cpu")).method_name == "truncate"


@pytest.mark.parametrize("method", BASELINES)
def test_a_model_needs_no_profile(model_folder, method):
    engine = prepare(Setup(str(model_folder), method=method, device="cpu"))
    assert getattr(engine.options, "longest", 0) <= engine.window == 256


# --- needles ---

SMALL = """\
name: small
window: {window}
prompt: {{prefix: "<|bos|>", question: "\\n\\nQuestion: {{question}}\\nAnswer:"}}
max_new_tokens: 16
methods:
  streaming: {{budget: 640, chunk: 128}}
"""


@pytest.mark.parametrize(
    ("method", "window", "found"),
    [
        ("streaming", 4096, [False, True, True]),  # 636 latest tokens and less than a chunk
        ("truncate", 512, [True, False, True]),  # about 220 at each end
    ],
)
def test_needles_inside_are_found_and_those_outside_are_missed(tmp_path, method, window, found):
    profile = tmp_path / "small.yaml"
    profile.write_text(SMALL.format(window=window))
    setup = Setup(profile=str(profile), method=method, device="cpu", dtype="fp32")
    needles = task("number")  # at the beginning, in the middle, at the end
    (case,) = needles.make(open_model_files("tiny").tokenizer, 1024, 3, 2)
    with opened(case, setup, [METHOD]) as (_, session):
        asked = [ask(session, query, How()) for query in case.queries]
    assert [needles.score(one.answers, one.answer) for one in asked] == found
    assert [one.gathered for one in asked] == found
