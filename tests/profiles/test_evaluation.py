"""The bundled model's evaluation: exact cases that nothing gives away, strict scores, one run."""

import json
import lzma
import math
import random
import re
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from transformers import AutoModelForCausalLM

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.measure.eval.frames import Heldout, slots_of
from longctx.core.measure.eval.text_match import holds
from longctx.core.model.files import open_model_files
from longctx.core.profile.profile import PromptTemplate
from longctx.core.profile.prompt import PromptEncoder
from longctx.core.tokens.safe_splits import plain_backend
from longctx.profiles.recipe.evaluation import evaluate, natural
from longctx.profiles.recipe.evaluation.answers import Answerer
from longctx.profiles.recipe.evaluation.cases import CaseBuilder, refusal_plans, retrieval_plans
from longctx.profiles.recipe.evaluation.filler import Haystack, read_texts, sentences
from longctx.profiles.recipe.evaluation.fitting import Draft, fit
from longctx.profiles.recipe.evaluation.ngram import ByteNgram
from longctx.profiles.recipe.evaluation.report import rate, refusals

ROOT = Path(__file__).parents[2]
FRAMES = ROOT / "profiles" / "tiny" / "heldout-frames.yaml"
KINDS = list(yaml.safe_load(FRAMES.read_text("utf-8"))["kinds"])
LENGTHS = (900, 1024)


@pytest.fixture(scope="module")
def heldout() -> Heldout:
    return Heldout.load(FRAMES)


@pytest.fixture(scope="module")
def tokenizer():
    return open_model_files("tiny").tokenizer


@pytest.fixture(scope="module")
def backend(tokenizer):
    return plain_backend(tokenizer.backend_tokenizer)


@pytest.fixture(scope="module")
def haystacks(tmp_path_factory, backend) -> list[Haystack]:
    folder = tmp_path_factory.mktemp("haystacks")
    log = folder / "door.log"
    rng = random.Random(5)
    lines = [f"{n:07d} door {rng.choice('abc')} opened by card\n" for n in range(900)]
    log.write_text("".join(lines), "utf-8")
    paths = {"prose": ROOT / "samples" / "harbour-book.md", "code": ROOT / "core", "log": log}
    return [Haystack(name, [path], backend, seed=0) for name, path in paths.items()]


@pytest.fixture(scope="module")
def make_builder(heldout, haystacks, tokenizer, backend):
    def make(seed: int = 0) -> CaseBuilder:
        prompt = PromptEncoder(PromptTemplate("<|bos|>"), tokenizer)
        return CaseBuilder(heldout, haystacks, prompt, backend, seed)

    return make


@pytest.fixture(scope="module")
def cases(make_builder):
    builder = make_builder()
    plans = [plan for kind in KINDS for plan in retrieval_plans(kind, 12)]
    return {length: builder.build(plans, length) for length in LENGTHS}


@pytest.fixture(scope="module")
def refused(make_builder, heldout):
    return make_builder().build(refusal_plans(heldout.absent_kinds, 66), 1024)


def frame_of(heldout, case):
    frames = heldout.kinds[case.plan.kind].frames
    return frames[case.plan.number % len(frames)]


def keys_of(heldout, case) -> list[str]:
    """The values of the question's slots, read back from its words."""
    frame = frame_of(heldout, case)
    pattern = re.escape(frame.question)
    for slot in slots_of(frame.question):
        pattern = pattern.replace(re.escape("{" + slot + "}"), "(.+)")
    return list(re.fullmatch(pattern, case.question).groups())


def own_statements(case, backend) -> list[str]:
    ids = case.document.ids.tolist()
    spans = case.document.needles[: case.statements]
    return [backend.decode(ids[a:b]).strip() for a, b in spans]


# --- cases ---


def test_prompts_have_exactly_the_wanted_tokens(cases, backend, tokenizer):
    for length, built in cases.items():
        assert {len(case.prompt) for case in built} == {length}
    for case in built:
        assert backend.encode(case.document.text).ids == case.document.ids.tolist()
        whole = tokenizer.decode(case.prompt)
        assert whole.startswith("<|bos|>" + case.document.text)
        assert whole.endswith(f"\n\nQuestion: {case.question}\nAnswer:")


def test_every_kind_meets_every_haystack_and_every_second_case_has_distractors(cases):
    for kind in KINDS:
        built = [case for case in cases[1024] if case.plan.kind == kind]
        assert {case.haystack for case in built} == {"prose", "code", "log"}
        crowded = [len(case.document.needles) > case.statements for case in built]
        assert crowded == [True] * 12 if kind == "near-identical" else [False, True] * 6


def test_the_needle_stands_in_the_document_once(cases, heldout, backend):
    for case in cases[900]:
        statements = own_statements(case, backend)
        assert len(statements) == len(frame_of(heldout, case).statements)
        for statement in statements:
            assert case.document.text.count(statement) == 1
        assert any(case.answer in statement for statement in statements)


def test_answer_and_keys_stand_nowhere_else(cases, heldout, backend):
    for case in cases[1024]:
        rest = case.document.text
        for statement in own_statements(case, backend):
            rest = rest.replace(statement, "")
        for secret in [case.answer, *keys_of(heldout, case)]:
            assert not holds(rest, secret), (secret, case.question)
        assert not holds(case.question, case.answer)


def test_a_document_without_the_answer_has_neither_it_nor_its_key(refused, heldout):
    absent = [case for case in refused if case.plan.absent]
    assert len(absent) == len(refused) / 2
    assert {case.plan.kind for case in absent} == set(heldout.absent_kinds)
    for case in absent:
        assert case.answer == "not in the document"
        assert case.statements == 0
        assert case.depth is None
        assert len(case.document.needles) >= 3
        for key in keys_of(heldout, case):
            assert not holds(case.document.text, key)
        if not keys_of(heldout, case):
            words = re.split(r"\{\w+\}", frame_of(heldout, case).statements[0])
            assert max(words, key=len) not in case.document.text


def test_a_document_with_the_answer_has_as_many_distractors(refused):
    for case in refused:
        if not case.plan.absent:
            assert case.statements == 1
            assert len(case.document.needles) >= 4


def test_the_same_seed_gives_the_same_cases_and_another_seed_others(make_builder):
    plans = retrieval_plans("two-hop", 4)
    first, again = (make_builder(3).build(plans, 900) for _ in range(2))
    other = make_builder(4).build(plans, 900)
    for a, b, c in zip(first, again, other, strict=True):
        assert (a.prompt == b.prompt).all()
        assert a.document.text != c.document.text
        assert a.question != c.question


def test_needles_stand_at_all_depths_on_borders(make_builder):
    built = make_builder().build(retrieval_plans("name", 90), 900)
    depths = [case.depth for case in built]
    assert {int(5 * depth) for depth in depths} == {0, 1, 2, 3, 4}
    for case in built:
        if case.plan.distractors:
            continue
        text = case.document.text
        start = text.index(case.answer)
        before = text[: max(text.rfind("\n", 0, start), text.rfind(". ", 0, start)) + 1]
        assert not before or before[-1] in "\n." or before.rstrip()[-1] in ".!?\"'\u201d\u2019"


def test_statements_keep_their_order_where_it_matters(make_builder):
    for case in make_builder().build(retrieval_plans("variable-tracking", 20), 1024):
        first, second = case.document.needles[:2]
        assert first < second


def test_values_that_haystacks_are_full_of_are_an_error(tmp_path, tokenizer, backend):
    file = tmp_path / "log.txt"
    file.write_text("the answer is seven\n" * 900, "utf-8")
    content = {
        "pools": {"value": ["seven"]},
        "values": {},
        "absent": {"answer": "no", "kinds": []},
        "kinds": {
            "only": {
                "task": "pattern",
                "frames": [{"statement": "It is {value}.", "question": "?", "answer": "{value}"}],
            }
        },
    }
    prompt = PromptEncoder(PromptTemplate(), tokenizer)
    hay = Haystack("log", [file], backend, 0)
    builder = CaseBuilder(Heldout(content), [hay], prompt, backend, 0)
    with pytest.raises(LongctxError, match="1 are missing"):
        builder.build(retrieval_plans("only", 1), 200)


# --- facts ---


def test_no_question_gives_its_answer_away_and_no_value_is_taken(heldout):
    rng = random.Random(2)
    for kind in heldout.kinds.values():
        for frame in kind.frames:
            fact = heldout.fact(frame, rng)
            other = heldout.fact(frame, rng, set(fact.values.values()))
            assert not holds(fact.question, fact.answer)
            assert not set(fact.values.values()) & set(other.values.values())
            assert "{" not in fact.question


def test_siblings_differ_from_the_key_in_one_piece(heldout):
    rng = random.Random(3)
    for frame in heldout.kinds["near-identical"].frames:
        fact = heldout.fact(frame, rng)
        (key,) = frame.keys
        taken = set(fact.values.values())
        for _ in range(7):
            near = heldout.sibling(fact, rng, taken)
            pieces = zip(fact.pieces[key], near.pieces[key], strict=True)
            assert sum(a != b for a, b in pieces) == 1
            assert not taken & set(near.values.values())
            taken |= set(near.values.values())


def test_frames_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        Heldout.load(tmp_path / "nowhere.yaml")
    (tmp_path / "part.yaml").write_text("pools: {}\n", "utf-8")
    with pytest.raises(UsageError, match="values"):
        Heldout.load(tmp_path / "part.yaml")


# --- haystacks ---


def test_sentences_end_at_sentences():
    text = 'Mr. Pell rowed. "Come!" he said. Then rain\nfell, e.g. here.\n\nNo more'
    cut = sentences(text)
    assert "".join(cut) == text
    assert cut == [
        "Mr. Pell rowed. ",
        '"Come!" he said. ',
        "Then rain\nfell, e.g. here.\n\n",
        "No more",
    ]


def test_compressed_files_are_read_and_others_left_out(tmp_path, capsys):
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"packed"))
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "c.txt").write_text("plain", "utf-8")
    assert sorted(read_texts([tmp_path], 0, 100)) == ["packed", "plain"]
    assert "b.bin" in capsys.readouterr().err
    assert sum(map(len, read_texts([tmp_path], 0, 7))) == 7
    with pytest.raises(UsageError, match="nothing-here"):
        list(read_texts([tmp_path / "nothing-here"], 0, 100))


def test_a_haystack_that_is_too_short_is_an_error(tmp_path, backend):
    (tmp_path / "short.txt").write_text("One line.\n", "utf-8")
    hay = Haystack("log", [tmp_path], backend, 0)
    assert hay.take(2, random.Random(0)) == ["One line.\n"]
    with pytest.raises(UsageError, match="5,000"):
        hay.take(5000, random.Random(0))


def test_needles_at_both_ends_leave_nothing_to_trim(backend):
    pieces = ["The boat came home. "] * 30
    needles = [(0.0, "First of all."), (1.0, "Last of all.")]
    (whole,) = fit([Draft(pieces, needles, 60)], backend)
    assert whole is None
    (whole,) = fit([Draft(pieces, needles[:1], 60)], backend)
    assert len(whole.ids) == 60
    assert whole.text.startswith("First of all.")
    (whole,) = fit([Draft(pieces, needles[1:], 60)], backend)
    assert whole.text.endswith("Last of all.")


# --- scores ---


def test_intervals():
    known = {(): (0.0, 1.0), (True,) * 10: (0.7225, 1.0), (True, False) * 50: (0.4038, 0.5962)}
    for hits, bounds in known.items():
        found = rate(hits)
        assert (round(found["low"], 4), round(found["high"], 4)) == bounds
    assert rate([True, False])["rate"] == 0.5


def test_refusals():
    scores = refusals([True, True, False, False], [True, False, True, False])
    assert (scores["precision"], scores["recall"]) == (0.5, 0.5)
    assert refusals([False], [True])["precision"] == 0.0


# --- bits per byte ---


def test_the_byte_model_gives_chances_that_sum_to_one():
    ngram = ByteNgram(b"the boat came home, the boat came back, the bell rang")
    for context in (b"", b"z", b"the boat cam", b"zz the"):
        before = ngram.bits(context)
        chances = [2 ** -(ngram.bits(context + bytes([byte])) - before) for byte in range(256)]
        assert sum(chances) == pytest.approx(1, abs=1e-9)


def test_the_byte_model_knows_what_it_has_read():
    text = b"the keeper wrote that a boat came home " * 40
    ngram = ByteNgram(text)
    assert ngram.bits(text) / len(text) < 0.2
    assert ngram.bits(bytes(range(128, 228))) / 100 > 8


@pytest.fixture(scope="module")
def random_answerer(model_folder) -> Answerer:
    return Answerer(str(model_folder), "cpu", "fp32")


def test_losses_are_those_of_the_model_over_its_windows(random_answerer, model_folder):
    ids = np.random.default_rng(0).integers(0, 256, 50)
    prefix, window = np.array([0]), 21
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    expected = 0.0
    for start in (0, 20, 40):
        rows = torch.tensor([[0, *ids[start : start + 20]]])
        with torch.no_grad():
            logits = model(rows).logits[0, :-1]
        expected += F.cross_entropy(logits, rows[0, 1:], reduction="sum").item() / math.log(2)
    assert random_answerer.loss(ids, prefix, window) == pytest.approx(expected, rel=1e-5)


# --- answers ---


def test_answers_in_batches_are_those_that_transformers_generates(random_answerer, model_folder):
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 256, length).astype(np.int32) for length in (30, 30, 11, 23)]
    answers = random_answerer.answers(prompts, [random_answerer.room("a dozen letters")] * 4)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    tokenizer = random_answerer.files.tokenizer
    limit = len(random_answerer.backend.encode("a dozen letters").ids) + 4
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.from_numpy(prompt.astype(np.int64))[None]
        mask = torch.ones_like(ids)
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=limit, do_sample=False, pad_token_id=0
        )
        text = tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)
        assert answer == text.strip()
    assert len(set(answers)) > 1


# --- the command ---


@pytest.fixture
def material(tmp_path, model_folder):
    """Options for a run of a random model over a few frames."""
    content = yaml.safe_load(FRAMES.read_text("utf-8"))
    few = {name: content["kinds"][name] for name in ("pass-key", "number-for-city")}
    content |= {"kinds": few, "absent": {"answer": "not in the document", "kinds": ["pass-key"]}}
    (tmp_path / "frames.yaml").write_text(yaml.safe_dump(content), "utf-8")
    record = {"context": "The bell rang at nine.", "question": "When?", "answers": ["at nine"]}
    other = {"context": "Fog came.", "question": "What came?", "answers": ["fog"]}
    records = "".join(json.dumps(one) + "\n" for one in (record, other))
    (tmp_path / "dev.jsonl").write_text(records, "utf-8")
    prose = str(ROOT / "samples" / "harbour-book.md")
    return [
        *(str(model_folder), "--frames", str(tmp_path / "frames.yaml"), "--cases", "2"),
        *("--prose", prose, "--log", str(ROOT / "samples"), "--squad", str(tmp_path / "dev.jsonl")),
        *("--lengths", "700", "--held-out", prose, "--train-text", prose, "--device", "cpu"),
        *("--dtype", "fp32"),
    ]


def test_a_run_reports_every_part_and_can_be_repeated(material, tmp_path, capsys):
    found = []
    for name in ("first", "again"):
        evaluate.main([*material, "--out", str(tmp_path / name)])
        found.append(json.loads((tmp_path / f"{name}.json").read_text("utf-8")))
        assert capsys.readouterr().out.startswith("Model `")
    first, again = ({**each, "seconds": 0} for each in found)
    assert first == again
    cells = {(row["kind"], row["length"], row["haystack"]) for row in first["retrieval"]}
    assert cells >= {("pass-key", 700, "all"), ("number-for-city", 700, "prose")}
    assert [row["n"] for row in first["retrieval"] if row["haystack"] == "all"] == [2, 2]
    assert first["refusal"][0]["absent"] == 1
    natural = [(row["setting"], row["n"]) for row in first["squad"]]
    assert natural == [("alone", 2), ("among 1 others", 2), ("in 700 tokens", 2)]
    # A random model knows nothing of the text; the byte model has read it.
    assert first["bits_per_byte"]["ngram"] < 2 < first["bits_per_byte"]["model"]
    table = (tmp_path / "first.md").read_text("utf-8")
    for part in ("| pass-key |", "precision", "natural questions", "bits per byte", "60-80%"):
        assert part in table


def test_natural_questions_need_nothing_else(material, tmp_path):
    squad = material.index("--squad")
    options = ["--out", str(tmp_path / "alone"), "--device", "cpu", "--dtype", "fp32"]
    evaluate.main([material[0], *material[squad : squad + 2], *options])
    found = json.loads((tmp_path / "alone.json").read_text("utf-8"))
    assert [row["setting"] for row in found["squad"]] == ["alone", "among 1 others"]
    assert "retrieval" not in found


def test_frames_without_a_haystack_are_refused(material, capsys):
    with pytest.raises(SystemExit):
        evaluate.main(material[:3])
    assert "--frames needs --prose" in capsys.readouterr().err


# --- natural questions ---


def test_a_paragraph_stands_once_among_others_in_an_order_that_is_repeated():
    contexts = [f"Paragraph {name}." for name in "abcdefghij"]
    record = {"context": contexts[2]}
    texts = [natural.among(record, contexts, 7, number) for number in range(20)]
    for text in texts:
        parts = text.split("\n\n")
        assert len(set(parts)) == 8
        assert contexts[2] in parts
    places = {text.split("\n\n").index(contexts[2]) for text in texts}
    assert len(places) > 3
    assert texts[3] == natural.among(record, contexts, 7, 3)


# --- refusals in either phrase ---


class Says:
    """Answers all questions with the same words."""

    def __init__(self, words: str):
        self._words = words

    def room(self, right: str) -> int:
        return len(right)

    def answers(self, prompts: list[np.ndarray], limits: list[int]) -> list[str]:
        return [self._words] * len(prompts)


@pytest.mark.parametrize(
    ("words", "refused"),
    [("not in the document", True), ("not in the text", True), ("It is not in the text.", False)],
)
def test_a_refusal_is_either_phrase_and_nothing_more(make_builder, heldout, words, refused):
    trials = evaluate.refusal(make_builder(), cast("Answerer", Says(words)), heldout, 4, [900])
    assert {trial["refused"] for trial in trials} == {refused}
    assert [trial["right"] for trial in trials if trial["absent"]] == [refused] * 2
    assert not any(trial["right"] for trial in trials if not trial["absent"])
