"""Passages before the model: which, in which order, with what between; real small models."""

import dataclasses
import itertools
from contextlib import ExitStack
from pathlib import Path

import composing_transcription as transcription
import pytest
import torch
from small_passages import small_passages
from transformers import AutoModelForCausalLM

from longctx.core.ask import candidates, gathering, reranking
from longctx.core.ask.answering import Question
from longctx.core.ask.asking import Asking
from longctx.core.ask.joint_session import JointSession
from longctx.core.ask.refusing import first_tokens
from longctx.core.ask.reranking import WEIGHT, reranked
from longctx.core.ask.session import Session
from longctx.core.ingest.ingest import ingest
from longctx.core.kv.kept_prompts import KeptPrompts
from longctx.core.model.adapter import Decoder
from longctx.core.profile.sampling import Sampling
from longctx.core.retrieve.best_passages import run_of
from longctx.core.store.library import Library

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
def opened(library, setup, tmp_path):
    """Opens documents with a `reading` in the profile."""
    with ExitStack() as stack:

        def open_session(reading: str, *names: str) -> Asking:
            text = f"{Path(setup.profile).read_text()}reading: {{{reading}}}\n"
            (tmp_path / "reading.yaml").write_text(text)
            changed = dataclasses.replace(setup, profile=str(tmp_path / "reading.yaml"))
            if len(names) == 1:
                return stack.enter_context(Session(library, names[0], changed))
            chosen = candidates.of_names(Library.open(library), names)
            return stack.enter_context(JointSession(chosen, changed))

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


def test_defaults_are_the_gathered_tokens_in_the_order_of_the_document(opened, prompts):
    session = opened("", "long")
    answer = session.ask(QUESTION, 150, FEW)
    in_order = sorted(answer.passages, key=lambda passage: passage.start)
    assert len(in_order) > 1
    text = "".join(passage.text for passage in in_order)
    assert session.engine.files.tokenizer.decode(prompts[0][1]) == text
    read = {"tokens": len(prompts[0][1]), "passages": len(in_order), "order": "document"}
    assert answer.state["read"] == read
    assert answer.tokens["gathered"] == read["tokens"]
    assert answer.state["answer_model"] == answer.state["model"]


@pytest.mark.parametrize("order", ["document", "best-first", "best-last"])
@pytest.mark.parametrize("names", [("long",), ("both",), ("both", "long")])
def test_passages_stand_as_the_transcription_says(opened, prompts, order, names):
    session = opened(f'order: {order}, separator: "\\n--\\n", passages: 3, tokens: 200', *names)
    engine = session.engine
    answer = session.ask(QUESTION, sampling=FEW)
    separator = engine.files.tokenizer("\n--\n", add_special_tokens=False).input_ids
    way = session._way(QUESTION, None)
    asked = Question(*engine.prompt.question(QUESTION), 2, words=QUESTION)
    found = way.begin(asked, lambda: None).found()
    stored = [
        i
        for document in way.documents
        for _, rows in document.rows("tokens", ("ids",))
        for i in rows["ids"].tolist()
    ]
    given = (found.passages, order, separator, lambda run: stored[run[0] : run[1]])
    assert prompts[0][1] == transcription.composed(*given)
    assert 1 < len(found.passages) == len(answer.passages) <= 3
    scores = [float(found.ranked.scores.max()), *[p.score for p in answer.passages]]
    assert scores == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
    read = {"tokens": len(prompts[0][1]), "passages": len(found.passages), "order": order}
    assert answer.state["read"] == read
    between = len(separator) * (len(found.passages) - 1)
    assert read["tokens"] == answer.tokens["gathered"] + between
    assert read["tokens"] + len(prompts[0][0]) <= 200


def test_logits_are_those_of_transformers_on_that_prompt(opened, prompts, model_folder):
    session = opened('order: best-last, separator: "\\n", passages: 2', "long")
    asked = Question(
        *session.engine.prompt.question(QUESTION),
        2,
        decoding=session.engine.decoding,
        words=QUESTION,
    )
    begun = session._way(QUESTION, None).begin(asked, lambda: None)
    model = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    with torch.inference_mode():
        wanted = model(torch.tensor([[*itertools.chain(*prompts[0])]])).logits[0, -1:]
        got = session.engine.decoder.logits(begun.hidden)
    assert torch.allclose(got, wanted, atol=1e-4)
    assert begun.prompt.tolist() == [*itertools.chain(*prompts[0])]


def test_what_fits_as_a_whole_is_read_as_it_is(opened, prompts):
    plain = opened("", "short").ask(QUESTION, sampling=FEW)
    answer = opened('order: best-first, separator: "--", passages: 1', "short").ask(
        QUESTION, sampling=FEW
    )
    assert prompts[0] == prompts[1]
    assert answer.answer == plain.answer
    assert answer.state["read"] == plain.state["read"]
    few = opened("tokens: 20", "short").ask(QUESTION, sampling=FEW)
    assert few.tokens["gathered"] < plain.tokens["gathered"]


def test_the_published_rule_is_as_published(opened, prompts):
    plain = opened("", "long").ask(QUESTION, sampling=FEW, gather_by="method")
    reading = 'order: best-first, separator: "--", passages: 1, tokens: 30'
    changed = opened(reading, "long").ask(QUESTION, sampling=FEW, gather_by="method")
    assert prompts[0] == prompts[1]
    assert (changed.answer, changed.passages) == (plain.answer, plain.passages)


def test_what_is_asked_for_overrides_the_profile(opened):
    session = opened("tokens: 80, passages: 1", "long")
    usual = session.ask(QUESTION, sampling=FEW)
    assert usual.state["read"]["passages"] == 1
    more = session.ask(QUESTION, 180, FEW, passages=2)
    assert more.state["read"]["passages"] == 2
    assert usual.state["read"]["tokens"] < more.state["read"]["tokens"] < 180
    assert session.find(QUESTION, 180).tokens["gathered"] > more.tokens["gathered"] / 2
    assert "read" not in session.find(QUESTION).state


def test_other_readings_leave_a_document_unchanged(library, setup, tmp_path):
    text = Path(setup.profile).read_text() + "reading: {passages: 2}\n"
    (tmp_path / "two.yaml").write_text(text)
    changed = dataclasses.replace(setup, profile=str(tmp_path / "two.yaml"))
    assert ingest(library, [str(library.parent / "long.txt")], changed).status == "unchanged"


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


def test_the_passages_in_which_the_model_finds_an_answer_come_first(opened, prompts, model_folder):
    session = opened("", "long")
    engine, way = session.engine, session._way(QUESTION, None)
    asked = Question(*engine.prompt.question(QUESTION), 2, words=QUESTION)
    ranked = way.ranked(asked)
    taken = sorted(range(len(ranked.scores)), key=lambda number: -ranked.scores[number])[:4]
    model = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    firsts = first_tokens(engine.files.tokenizer)
    (rows,) = (part["ids"] for _, part in way.documents[0].rows("tokens", ("ids",)))
    odds = []
    for number in taken:
        own = rows[slice(*run_of(ranked.passages, number))].long()
        ids = torch.cat([engine.prompt.prefix(), own, asked.ids])
        with torch.inference_mode():
            lacks = model(ids[None]).logits[0, -1].softmax(-1)[firsts].sum().double()
        odds.append(float(torch.log((1 - lacks) / lacks)))
    found = [float(ranked.scores[number]) for number in taken]
    total = standardised(found) + WEIGHT * standardised(odds)
    order = total.argsort(descending=True).tolist()
    assert order != sorted(order)  # by chance of this model; else reranking would show nothing
    again = reranked(ranked, way._composer, asked.ids, 4)
    best = (-again.scores).argsort(kind="stable")[:4].tolist()
    assert best == [taken[number] for number in order]
    rest = [w for w in (-again.scores).argsort(kind="stable").tolist() if w not in best]
    assert rest == [w for w in (-ranked.scores).argsort(kind="stable").tolist() if w not in best]


def test_what_the_model_found_itself_is_reranked_too(opened, prompts):
    session = opened("passages: 1, tokens: 200, reranked: 4", "long")
    asked = Question(*session.engine.prompt.question(QUESTION), 2, words=QUESTION)
    way = session._way(QUESTION, None)
    begun = way.begin(asked, lambda: None).found()
    again = reranked(way.ranked(asked), way._composer, asked.ids, 4)
    assert begun.ranked.scores.tolist() == pytest.approx(again.scores.tolist())
    usual = opened("passages: 1, tokens: 200", "long")
    plain = usual._way(QUESTION, None).begin(asked, lambda: None).found()
    assert plain.ranked.scores.tolist() != pytest.approx(again.scores.tolist())


def test_no_more_passages_are_read_side_by_side_than_there_is_room_for(opened, monkeypatch):
    session = opened("", "long")
    asked = Question(*session.engine.prompt.question(QUESTION), 2, words=QUESTION)
    way, beside, of = session._way(QUESTION, None), [], KeptPrompts.of

    def noted(kept, beginnings, read):
        beside.append(len(beginnings))
        return of(kept, beginnings, read)

    monkeypatch.setattr(KeptPrompts, "of", noted)
    whole = reranked(way.ranked(asked), way._composer, asked.ids, 4)
    assert beside.pop() == 4
    monkeypatch.setattr(reranking, "BESIDE", 1)
    session.engine._kept_prompts = KeptPrompts()
    parts = reranked(way.ranked(asked), way._composer, asked.ids, 4)
    assert beside == [1] * 4
    assert parts.scores.tolist() == pytest.approx(whole.scores.tolist(), abs=1e-4)


def test_scores_have_the_same_bits_whatever_was_read_before(opened, monkeypatch):
    """Few tokens have other bits beside many; a question is beside as many in any order."""
    session, passes, read = opened("", "long"), [], Decoder.read
    asked = Question(*session.engine.prompt.question(QUESTION), 2, words=QUESTION)
    way, found = session._way(QUESTION, None), []
    ranked = way.ranked(asked)

    def noted(decoder, ids, *more):
        passes.append(ids.tolist())
        return read(decoder, ids, *more)

    monkeypatch.setattr(Decoder, "read", noted)
    for before in ([], [3], [5, 2]):
        session.engine._kept_prompts = KeptPrompts()
        passes.clear()
        more = ranked, way._composer, asked.ids
        again = [reranked(*more, most) for most in (*before, 8)][-1]
        texts = sorted(ids for ids in passes if ids[-len(asked.ids) :] != asked.ids.tolist())
        found.append((again.scores.tolist(), passes[-1], texts))
    assert found[1:] == found[:1] * 2


def standardised(values: list[float]) -> torch.Tensor:
    """Distances from the mean in standard deviations of the population."""
    held = torch.tensor(values, dtype=torch.double)
    return (held - held.mean()) / held.std(correction=0)
