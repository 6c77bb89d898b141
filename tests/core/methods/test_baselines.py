"""The baselines as documents: ingested, stopped, saved, asked, refused; and what they must miss."""

import dataclasses
from pathlib import Path

import pytest
from other_process import answers

from longctx.core.ask.session import Session
from longctx.core.ask.strategies import Question
from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.decode.decode import Sampling
from longctx.core.engine.setup import Setup, prepare
from longctx.core.ingest.checkpoints import Cadence
from longctx.core.ingest.ingest import ingest
from longctx.core.ingest.plan import plan
from longctx.core.measure.eval.tasks import needles as task
from longctx.core.measure.runner import How, ask, opened
from longctx.core.model.files import ModelFiles, open_model_files
from longctx.core.retrieve.gather_by import METHOD

LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(30)]
EVICTING = ["streaming", "h2o", "tova"]
BASELINES = [*EVICTING, "truncate"]
QUESTION = "boat?"


class Stopped(BaseException):
    """As Ctrl-C, at a place of our choice."""


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


def files(library: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (library / "documents").rglob("*") if p.is_file()}


# --- from reading to answering ---


def test_another_process_answers_the_same(library, book, setup_random):
    here = {}
    for method in BASELINES:
        ingest(library, [book], with_method(setup_random, method), name=method)
        with Session(library, method, setup_random) as session:
            here[method] = [session.ask(QUESTION).as_dict() for _ in range(2)]
    there = answers(library, QUESTION, 8, dict.fromkeys(BASELINES, setup_random))
    for method in BASELINES:
        first, again = here[method]
        assert first["state"]["method"] == method
        for other in (again, there[method]):
            for key in ("answer", "passages", "tokens", "attended_per_step"):
                assert other[key] == first[key], (method, key)


@pytest.mark.parametrize("method", BASELINES)
def test_a_reading_that_was_stopped_ends_with_the_same_bytes(library, book, setup_random, method):
    setup = with_method(setup_random, method)
    ingest(library.with_name("whole"), [book], setup)

    def stop(progress):
        if progress.tokens >= 500:
            raise Stopped

    stops = method in EVICTING  # a chunk of truncation is longer than the book
    if stops:
        with pytest.raises(Stopped):
            ingest(library, [book], setup, cadence=Cadence.given(1, None), on_progress=stop)
    report = ingest(library, [book], setup)
    assert (report.reused_tokens >= 500) == stops
    assert files(library) == files(library.with_name("whole"))


@pytest.mark.parametrize("method", BASELINES)
def test_a_plan_says_what_the_state_will_take(library, book, setup_random, method):
    setup = with_method(setup_random, method)
    made, report = plan(library, [book], setup), ingest(library, [book], setup)
    assert made.tokens == report.tokens
    assert made.disk_bytes == pytest.approx(report.state_bytes, rel=0.1, abs=2000)
    expected = [] if method == "truncate" else ["budget", "chunk", "question"]
    cut = {note.split()[0] for note in report.notes}
    assert cut == set(expected)
    assert all("the model's window is 256 tokens" in note for note in report.notes)


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


def test_a_short_document_is_answered_by_full_attention(library, tmp_path, setup_random):
    short = tmp_path / "short.txt"
    short.write_text("the keeper wrote in his book")
    found = {}
    for method in ("full", *BASELINES):
        ingest(library, [str(short)], with_method(setup_random, method), name=method)
        with Session(library, method, setup_random) as session:
            found[method] = session.ask("who wrote?", sampling=Sampling(max_new_tokens=6))
    assert len({answer.answer for answer in found.values()}) == 1
    assert len({answer.tokens["gathered"] for answer in found.values()}) == 1


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
  streaming: {{budget: 1280, chunk: 256}}
"""


@pytest.mark.parametrize(
    ("method", "window", "found"),
    [
        ("streaming", 4096, [False, True, True]),  # 1,276 latest tokens and less than a chunk
        ("truncate", 1024, [True, False, True]),  # about 480 at each end
    ],
)
def test_needles_inside_are_found_and_those_outside_are_missed(tmp_path, method, window, found):
    profile = tmp_path / "small.yaml"
    profile.write_text(SMALL.format(window=window))
    setup = Setup(profile=str(profile), method=method, device="cpu", dtype="fp32")
    needles = task("number")  # at the beginning, in the middle, at the end
    (case,) = needles.make(open_model_files("tiny").tokenizer, 2048, 3, 2)
    with opened(case, setup) as (_, session):
        asked = [ask(session, query, How()) for query in case.queries]
    assert [needles.score(one.answers, one.answer) for one in asked] == found
    assert [one.gathered for one in asked] == found
