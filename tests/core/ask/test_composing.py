"""Passages before the model: which, and in which order; real small models."""

import dataclasses
import itertools
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from small_passages import small_passages
from transformers import AutoModelForCausalLM

from longctx.core.ask import candidates, gathering
from longctx.core.ask.answering import Question
from longctx.core.ask.asking import Asking
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.session import Session
from longctx.core.ingest.ingest import ingest
from longctx.core.profile.sampling import Sampling
from longctx.core.store.library import Library
from longctx.core.store.manifest import Manifest

pytestmark = pytest.mark.usefixtures("models_loaded_once")
LINES = [f"line {i}: the keeper wrote that boat {i * 7919 % 1000} came home" for i in range(60)]
for number in (8, 40):
    LINES[number] += " past a zeppelin"
QUESTION = "which boat came home past the zeppelin?"
FEW = Sampling(max_new_tokens=2)


@pytest.fixture(scope="module", autouse=True)
def small_cuts():
    with pytest.MonkeyPatch.context() as patch:
        small_passages(patch, 32)
        yield


@pytest.fixture(scope="module")
def library(tmp_path_factory, setup) -> Path:
    """A long document, one of two sources, and a short one."""
    folder = tmp_path_factory.mktemp("composing")
    texts = {"long": LINES, "one": LINES[:20], "two": LINES[35:55], "short": LINES[40:41]}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines))
    for name, sources in {"long": ["long"], "both": ["one", "two"], "short": ["short"]}.items():
        ingest(folder / "library", [str(folder / f"{s}.txt") for s in sources], setup, name)
    return folder / "library"


@pytest.fixture
def opened(library, setup):
    """Opens documents."""
    with ExitStack() as stack:

        def open_session(*names: str) -> Asking:
            if len(names) == 1:
                return stack.enter_context(Session(library, names[0], setup))
            chosen = candidates.of_names(Library.open(library), names)
            return stack.enter_context(JointSession(chosen, setup))

        yield open_session


@pytest.fixture
def prompts(monkeypatch) -> list[tuple[list[int], ...]]:
    """Prefix, document's part and question of each prompt, as they are given to the model."""
    seen, recompute = [], gathering.recompute

    def noted(*given):
        seen.append(tuple(part.tolist() for part in given[1:4]))
        return recompute(*given)

    monkeypatch.setattr(gathering, "recompute", noted)
    return seen


@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("names", [("long",), ("both",), ("both", "long")])
def test_the_gathered_passages_stand_in_the_order_of_the_documents(opened, prompts, names, most):
    session = opened(*names)
    answer = session.ask(QUESTION, 150, FEW, passages=most)
    sources = [
        (document.manifest.name, source.name)
        for document in session._way(QUESTION, None).documents
        for source in document.manifest.sources
    ]
    place = lambda one: (sources.index((one.document, one.source)), one.start)  # noqa: E731
    in_order = sorted(answer.passages, key=place)
    assert 1 < len(in_order) <= (most or 99)
    text = "".join(passage.text for passage in in_order)
    assert session.engine.files.tokenizer.decode(prompts[0][1]) == text
    read = {"tokens": len(prompts[0][1]), "passages": len(in_order), "order": "document"}
    assert answer.state["read"] == read
    assert answer.tokens["gathered"] == read["tokens"]
    assert read["tokens"] + len(prompts[0][0]) <= 150
    assert answer.state["answer_model"] == answer.state["model"]
    scores = [passage.score for passage in answer.passages]
    assert scores == sorted(scores, reverse=True)


def test_logits_are_those_of_transformers_on_that_prompt(opened, prompts, model_folder):
    session = opened("long")
    asked = Question(
        *session.engine.prompt.question(QUESTION),
        2,
        150,
        session.engine.decoding,
        QUESTION,
    )
    begun = session._way(QUESTION, None).begin(asked, lambda: None)
    model = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    with torch.inference_mode():
        wanted = model(torch.tensor([[*itertools.chain(*prompts[0])]])).logits[0, -1:]
        got = session.engine.decoder.logits(begun.hidden)
    assert torch.allclose(got, wanted, atol=1e-4)
    assert begun.prompt.tolist() == [*itertools.chain(*prompts[0])]


def test_what_fits_as_a_whole_is_read_as_it_is(opened, prompts):
    session = opened("short")
    plain = session.ask(QUESTION, sampling=FEW)
    answer = session.ask(QUESTION, sampling=FEW, passages=1)
    assert prompts[0] == prompts[1]
    assert answer.answer == plain.answer
    assert answer.state["read"] == plain.state["read"]
    few = session.ask(QUESTION, 20, FEW)
    assert few.tokens["gathered"] < plain.tokens["gathered"]


def test_the_published_rule_is_as_published(opened, prompts):
    session = opened("long")
    plain = session.ask(QUESTION, sampling=FEW, gather_by="method")
    changed = session.ask(QUESTION, sampling=FEW, gather_by="method", passages=1)
    assert prompts[0] == prompts[1]
    assert (changed.answer, changed.passages) == (plain.answer, plain.passages)


def test_more_text_is_read_where_it_is_asked_for(opened):
    session = opened("long")
    one = session.ask(QUESTION, 180, FEW, passages=1)
    assert one.state["read"]["passages"] == 1
    more = session.ask(QUESTION, 180, FEW, passages=2)
    assert more.state["read"]["passages"] == 2
    assert one.state["read"]["tokens"] < more.state["read"]["tokens"] < 180
    assert session.find(QUESTION, 180).tokens["gathered"] > more.tokens["gathered"] / 2
    assert "read" not in session.find(QUESTION).state


def test_what_older_profiles_said_of_reading_is_passed_over(library, setup, tmp_path):
    shutil.copytree(library, tmp_path / "library")
    (file,) = (tmp_path / "library").rglob("long/manifest.json")
    manifest = Manifest.read(file.parent)
    reading = {"tokens": 80, "passages": 1, "order": "best-first"}
    older = dataclasses.replace(manifest, profile={**manifest.profile, "reading": reading})
    file.write_text(older.to_json(), "utf-8")
    own = dataclasses.replace(setup, profile=None)
    with Session(tmp_path / "library", "long", own) as session:
        assert session.ask(QUESTION, sampling=FEW).state["read"]["order"] == "document"
    source = str(library.parent / "long.txt")
    assert ingest(tmp_path / "library", [source], setup).status == "unchanged"


@pytest.mark.parametrize(("read", "asked"), [("fp32", "bf16"), ("bf16", "fp32")])
def test_a_state_of_one_number_format_is_asked_in_another(tmp_path, setup, read, asked):
    (tmp_path / "book.txt").write_text("\n".join(LINES))
    ingest(
        tmp_path / "library", [str(tmp_path / "book.txt")], dataclasses.replace(setup, dtype=read)
    )
    gathered = []
    for dtype in (read, asked):
        with Session(
            tmp_path / "library", None, dataclasses.replace(setup, dtype=dtype)
        ) as session:
            found = session.gathered(QUESTION, "hybrid", [150])[0]
            gathered.append({*found.tolist()})
            assert session.ask(QUESTION, 150, FEW).state["dtype"] == dtype
    both = len(gathered[0] & gathered[1])
    assert both > 0.8 * max(map(len, gathered))
