"""Tuning a pretrained model, at toy size: the model, what it is shown, the losses, a run."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from longctx.core.model.files import open_model_files
from longctx.core.model.merge import merged
from longctx.profiles.recipe.data.asked import AskedDocument, Question, write
from longctx.profiles.recipe.tuning import round_trip, searches, settings, state, train
from longctx.profiles.recipe.tuning.attention import attention
from longctx.profiles.recipe.tuning.losses import search_loss, search_scores
from longctx.profiles.recipe.tuning.model import Tuned
from longctx.profiles.recipe.tuning.nearest import Searcher, best_windows
from longctx.profiles.recipe.tuning.packed import pack
from longctx.profiles.recipe.tuning.passages import Passages
from longctx.profiles.recipe.tuning.shelf import STEP, WIDTH, window_count, windows_of
from longctx.profiles.recipe.tuning.writing import Writer

TINY = settings.load(settings.TINY)
WORDS = ["lamp", "river", "stone", "garden", "winter", "copper", "harbour", "candle", "bridge"]
WHOLE = "model.layers.3.self_attn.q_proj"


def filled(number: int) -> AskedDocument:
    """A document of some 500 tokens, with a question in its middle and one without an answer."""
    rng = random.Random(number)
    lines = [f"The {rng.choice(WORDS)} stood by the {rng.choice(WORDS)}." for _ in range(60)]
    lines[30] = f"Captain {number}7 hid the key under the {WORDS[number]} stair."
    text = "\n".join(lines)
    at = text.index("Captain")
    asked = Question(f"Who hid key {number}?", f"Captain {number}7", ((at, at + len(lines[30])),))
    return AskedDocument("wiki", text, (asked, Question("Who ate the moon?", None, ())))


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tuning") / "documents.jsonl"
    write(path, [filled(number) for number in range(8)])
    return path


@pytest.fixture(scope="module")
def bench(documents: Path) -> train.Bench:
    return train.Bench(TINY, [documents])


@pytest.fixture(scope="module")
def files():
    return open_model_files("tiny")


def changed(files, rank: int) -> Tuned:
    """The model with an adapter that changes something, or with changed matrices."""
    torch.manual_seed(1)
    model = Tuned(files, rank, [WHOLE], torch.float32)
    with torch.no_grad():
        for parameter in [*model.parameters()]:
            parameter.add_(torch.randn_like(parameter) * 3e-3)
    return model


@pytest.mark.parametrize("rank", [0, 4])
def test_equals_transformers_with_the_saved_weights_merged(files, tmp_path: Path, rank: int):
    model = changed(files, rank)
    model.save(tmp_path / "a.safetensors", torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32)
    weights = [(n, w) for n, w in plain.state_dict().items() if n != "lm_head.weight"]
    plain.load_state_dict(dict(merged(weights, tmp_path / "a.safetensors")), strict=False)
    rows = [np.arange(5, 45), np.arange(100, 117)]
    packed = pack(rows, 80, 6, 40)
    with torch.no_grad():
        states = model.through(model.embedded(packed), packed, model.merged(), 0, model.layers)
        logits = model.logits(states)
        expected = [plain(torch.tensor(row)[None]).logits[0] for row in rows]
    assert (logits[:57] - torch.cat(expected)).abs().max() < 1e-3
    again = changed(files, rank)
    again.load(tmp_path / "a.safetensors")
    for one, other in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_queries_are_the_model_s_own_before_rotation(files):
    model = changed(files, 4)
    plain = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32)
    weights = model.merged()
    ids = torch.arange(5, 25)
    packed = pack([ids.numpy()], 20, 2, 20)
    with torch.no_grad():
        states = model.through(model.embedded(packed), packed, weights, 0, 3)
        vectors = model.queries(states, weights, 3, [3, 4])
        normed = plain.model.layers[3].input_layernorm(states)
    q = (normed @ model.full[0].T).view(20, -1, 64)[:, [3, 4]]
    cosines = torch.nn.functional.normalize(q, dim=-1)
    mean = torch.einsum("ahd,bhd->ab", cosines, cosines) / 2
    assert torch.allclose(vectors @ vectors.T, mean, atol=1e-5)


def test_dropout_leaves_out_some_of_what_layers_add(files):
    model = Tuned(files, 4, [], torch.float32)
    packed = pack([np.arange(1, 9, dtype=np.int32)], 8, 3, 8)
    states, weights = model.embedded(packed), model.merged()
    whole = model.through(states, packed, weights, 0, 1)
    torch.manual_seed(0)
    one, other = (model.through(states, packed, weights, 0, 1, dropout=0.5) for _ in range(2))
    assert not torch.equal(one, other)
    assert not torch.equal(one, whole)


def test_packed_sequences_do_not_see_each_other():
    torch.manual_seed(0)
    q, k, v = torch.randn(30, 4, 8), torch.randn(30, 2, 8), torch.randn(30, 2, 8)
    bounds = torch.tensor([0, 11, 30, 30], dtype=torch.int32)
    whole = attention(q, k, v, bounds, 19)
    parts = [
        attention(q[a:b], k[a:b], v[a:b], torch.tensor([0, b - a], dtype=torch.int32), 19)
        for a, b in ((0, 11), (11, 30))
    ]
    assert torch.allclose(whole, torch.cat(parts), atol=1e-6)
    last = torch.softmax(q[5, 3] @ k[:6, 1].T / 8**0.5, 0) @ v[:6, 1]
    assert torch.allclose(whole[5, 3], last, atol=1e-5)


def test_packing_fills_up_and_refuses_what_does_not_fit():
    packed = pack([[1, 2], [3, 4, 5]], 12, 6, 4)
    assert packed.ids.tolist() == [1, 2, 3, 4, 5] + [0] * 7
    assert packed.bounds.tolist() == [0, 2, 5, 9, 12, 12, 12]
    assert packed.positions.tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2]
    for rows, size, most in (([[1] * 5], 12, 6), ([[1] * 4], 3, 6), ([[1]] * 6, 12, 6)):
        with pytest.raises(ValueError, match=r"fit|more than"):
            pack(rows, size, most, 4)


def test_writes_what_transformers_generates(files):
    model = changed(files, 4)
    prompts = [np.arange(5, 25), np.arange(300, 333), np.arange(40, 47)]
    written = Writer(model, end=-1).write(prompts, 6)
    for prompt, ids in zip(prompts, written, strict=True):
        row = [*prompt.tolist()]
        for _ in range(6):
            packed = pack([row], len(row), 2, len(row))
            with torch.no_grad():
                states = model.embedded(packed)
                states = model.through(states, packed, model.merged(), 0, model.layers)
                row.append(int(model.logits(states[-1:]).argmax()))
        assert ids == row[len(prompt) :]


def test_evidence_and_borders_are_where_the_text_has_them(bench: train.Bench):
    shelf, decode = bench.shelf, bench.backend.decode
    assert len(shelf.asked) == 16
    assert sum(one.known for one in shelf.asked) == 8
    for one in shelf.asked[::2]:
        (start, end), number = one.evidence[0], one.document
        text = decode(shelf.stretch(number, start, end).tolist()).strip()
        assert text == f"Captain {number}7 hid the key under the {text.split()[-2]} stair."
        assert shelf.borders[shelf.firsts[number] + start]
        assert decode(one.answer[:-1].tolist()) == f"Captain {number}7"
        first, last = one.words
        assert decode(one.question[first:last].tolist()).strip() == f"Who hid key {number}?"


def test_windows_cover_their_document():
    for length in (1, 64, 65, 128, 129, 500):
        count = window_count(length)
        assert (count - 1) * STEP + WIDTH >= length
        assert count == 1 or (count - 2) * STEP + WIDTH < length
        assert windows_of(((length - 1, length),), length) <= set(range(count))
    assert windows_of(((130, 140),), 500) == {1, 2}


def test_passages_have_the_evidence_unless_it_is_left_out(bench: train.Bench):
    shelf, decode = bench.shelf, bench.backend.decode
    passages = Passages(shelf, {0: [(3, 0), (0, 0), (5, 1)]})
    for seed in range(40):
        rng = random.Random(seed)
        with_it = passages.gathered(0, rng, absent=False)
        without = passages.gathered(0, rng, absent=True)
        stretch = passages.stretch(0, rng, absent=False, longest=200)
        cut = passages.stretch(0, rng, absent=True, longest=200)
        assert with_it.answers
        assert stretch.answers
        assert not without.answers
        assert not cut.answers
        for text, has in ((with_it, True), (stretch, True), (without, False), (cut, False)):
            assert ("Captain 07 hid the key" in decode(text.ids.tolist())) == has
        assert stretch.span
        assert len(stretch.ids) == stretch.span[1] - stretch.span[0]


def test_a_batch_learns_answers_and_nothing_else(bench: train.Bench):
    batch = bench.readings({}, 0, asking=0.3).batch(6000, 40)
    decode = bench.backend.decode
    seen = set()
    for number, kind in enumerate(batch.kinds):
        own = batch.owners == number
        text = decode(batch.targets[own].tolist(), skip_special_tokens=False)
        learnt = batch.packed.ids[batch.places[own] + 1]
        assert torch.equal(learnt, batch.targets[own])
        assert text.endswith("<|eos|>")
        assert ("?" in text) == (kind == "asking")
        assert "Captain" in text or bench.options.refusal in text
        seen.add(kind)
    assert seen == {"wiki", "asking"}


@pytest.fixture
def short_searches(monkeypatch):
    """Batches of four stretches of 256 tokens and twelve queries."""
    sizes = dict(STRETCH=256, COUNT=4, QUERIES=12, DROPPED=4, WINDOWS=3)
    sizes["SIZE"] = 4 * 260 + 12 * 120 + 8
    for name, value in sizes.items():
        monkeypatch.setattr(searches, name, value)


def test_a_search_batch_marks_the_windows_that_hold_the_evidence(bench, short_searches):
    made = bench.searches({0: [(3, 0)]}, 0)
    decode = bench.backend.decode
    asked = 0
    for _ in range(4):
        batch = made.batch()
        for number in range(len(batch.words)):
            words = decode(batch.packed.ids[batch.queries[number][batch.words[number]]].tolist())
            if "hid key" not in words:
                continue
            captain = f"Captain {words.split()[-1][:-1]}7"
            for place in batch.right[number].nonzero().tolist():
                at = batch.texts[place[0], place[1] * STEP :][:WIDTH]
                assert captain in decode(batch.packed.ids[at].tolist())
                asked += 1
            assert not (batch.right[number] & batch.unsure[number]).any()
    assert asked > 5


def test_the_score_is_that_of_a_search():
    """Standardised MaxSim, written down again for windows of two steps of one document."""
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize
    texts, queries = unit(torch.randn(1, 512, 16), dim=-1), unit(torch.randn(2, 5, 16), dim=-1)
    words = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    standard, plain = search_scores(texts, queries, words)
    for number, count in enumerate((5, 3)):
        best = (texts[0] @ queries[number, :count].T).unflatten(0, (8, STEP)).amax(1)
        windows = torch.maximum(best[:-1], best[1:])
        z = (windows - windows.mean(0)) / (windows.std(0) + 1e-4)
        assert torch.allclose(standard[number, 0], z.clamp_min(0).sum(1), atol=1e-3)
        assert torch.allclose(plain[number, 0], windows.mean(1), atol=1e-5)


def test_the_loss_of_a_search_leaves_unsure_windows_out():
    scores = torch.tensor([[[2.0, 5.0, 1.0]], [[0.0, 0.0, 0.0]]])
    right = torch.tensor([[[True, False, False]], [[False, False, False]]])
    loss, first = search_loss(scores, right, torch.zeros_like(right))
    assert loss == pytest.approx(float(torch.logsumexp(scores[0, 0], 0) - 2), abs=1e-5)
    assert first == 0
    unsure = torch.tensor([[[False, True, False]], [[False, False, False]]])
    loss, first = search_loss(scores, right, unsure)
    assert loss == pytest.approx(float(torch.logsumexp(scores[0, 0, [0, 2]], 0) - 2), abs=1e-5)
    assert first == 1


def test_the_nearest_windows_are_those_with_the_question_s_words(
    bench: train.Bench, files, tmp_path
):
    searcher = Searcher(Tuned(files, 0, [], torch.float32), bench.shelf, 3, [3, 4])
    found = best_windows(searcher, bench.shelf)
    assert sorted(found) == list(range(16))
    windows = {(d, w) for d in range(8) for w in range(window_count(bench.shelf.length(d)))}
    assert all(set(best) <= windows and len(best) == len(set(best)) for best in found.values())
    right = 0
    for number in range(0, 16, 2):
        asked = bench.shelf.asked[number]
        own = windows_of(asked.evidence, bench.shelf.length(asked.document))
        right += any((asked.document, w) in found[number] for w in own)
    assert right >= 6  # of 8, among the best 16 of some 60 windows
    state.save_found(tmp_path, found, bench.shelf)
    assert state.load_found(tmp_path, bench.shelf) == found
    other = replace(bench.shelf, ids=bench.shelf.ids[:-1])
    assert state.load_found(tmp_path, other) == state.load_found(tmp_path / "no", other) == {}


@pytest.mark.slow
def test_a_run_stops_goes_on_and_keeps_its_table(documents, tmp_path, short_searches, monkeypatch):
    def one_call(until: float) -> state.Clock:
        args = ["train", str(documents), "--run", str(tmp_path / "run"), "--until", str(until)]
        args += ["--of", "100", "--settings", str(settings.TINY)]
        monkeypatch.setattr("sys.argv", [*args, "--size", "900"])
        options = train.arguments()
        bench = train.Bench(settings.load(options.settings), options.documents)
        trainer = train.Trainer(bench, options, "cpu")
        begun.append(trainer.clock.steps)
        readings, found = bench.readings({}, 0, 0.2), bench.searches({}, 0)

        def take() -> tuple:
            batches = readings.batch(900, 40), found.batch()
            return tuple(train.changed(one, torch.Tensor.numpy) for one in batches)

        train.train(trainer, take)
        trainer.save()
        return trainer.clock

    monkeypatch.setattr(train, "WARM", 0)  # nothing is compiled here
    begun: list[int] = []
    first = one_call(0.01)  # a step takes longer
    second = one_call(first.seconds + 0.01)
    assert begun == [0, first.steps]
    assert second.steps > first.steps
    assert second.seconds > first.seconds
    assert second.tokens > first.tokens
    files = open_model_files("tiny")
    trained, fresh = (Tuned(files, 0, [], torch.float32) for _ in range(2))
    trained.load(tmp_path / "run" / state.ADAPTER)
    assert not torch.equal(trained.a["mlp_up_proj"], fresh.a["mlp_up_proj"])


def test_only_pairs_that_the_text_answers_are_kept():
    text = "Anna sold the brown horse to the miller in 1873."
    assert round_trip.drawn_pair("the miller\n To whom did Anna sell the horse?", text) == (
        "the miller",
        "To whom did Anna sell the horse?",
    )
    for drawn in (
        "the baker\nTo whom did Anna sell the horse?",  # not in the text
        "the miller\nDid the miller buy the horse?",  # the question has the answer
        "the miller\nTo whom did Anna sell the horse",  # no question
        "1873\nWhen did she?",  # too short
        "1873\nWhen did he sell this horse then?",  # nobody knows who he is
        "1873\nWhat year does the passage speak of?",
    ):
        assert round_trip.drawn_pair(drawn, text) is None, drawn


def test_the_evidence_is_the_sentence_most_like_the_question():
    text = "The miller slept. Anna sold the horse to the miller at noon. He was glad."
    document = AskedDocument("book", "Chapter 1\n\n" + text, ())
    place = round_trip.Stretch(0, 11, 11 + len(text))
    asked = round_trip.evidence_of(
        document, place, "The Miller", "To whom did Anna sell the horse?"
    )
    (start, end), *_ = asked.evidence
    assert document.text[start:end].strip() == "Anna sold the horse to the miller at noon."
    assert asked.answer == "The miller"


def test_stretches_are_whole_sentences_of_all_documents():
    documents = [filled(1), replace(filled(2), kind="facts"), filled(3)]
    found = round_trip.stretches(documents, 30, random.Random(0))
    assert {one.document for one in found} == {0, 2}
    assert 25 <= len(found) <= 31
    for one in found:
        text = documents[one.document].text[one.start : one.end]
        assert text.strip().endswith(".")
        assert len(text) < 1400
