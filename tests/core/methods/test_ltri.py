"""Ltri-LLM against its literal transcription, at its limits, and against mutations of itself."""

from dataclasses import replace
from functools import cache

import ltri_transcription as transcription
import numpy as np
import pytest
import torch
from float64_models import (
    ORDER,
    WIDE,
    exact,
    float64_model,
    largest_difference,
    own_logits,
    same_to_the_bit,
)
from retrieving_runs import PREFIX, Runs
from row_list import RowList

from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.memory import Place
from longctx.core.engine.encode import encode
from longctx.core.kv import retrieving, spans
from longctx.core.methods import ltri
from longctx.core.methods.ltri import Method, Options, parts
from longctx.core.model.adapter import Decoder
from longctx.kernels import span_boxes_ref

HEADS = ((1, 0, 0.1), (1, 3, 0.3), (2, 0, 0.3), (3, 1, 0.5))  # of layer 1 the second
OPTIONS = Options(
    first=5,
    local=24,
    block=8,
    chunk=16,
    retrieved=3,
    cached=4,
    gather=40,
    run=0,  # as in the paper
    in_order=False,
    spans=3,
    vectors=5,
    theta=(0.8, 0.7, 0.8, 0.75, 0.8),
    phi=(0.1, 0.2, 0.1, 0.05, 0.1),
    lam=(3.0, 2.0, 3.0, 1.0, 3.0),
    heads=HEADS,
)
DOCUMENT = 150
IDS, QUESTION = ORDER[: PREFIX + DOCUMENT], ORDER[200:223]  # more than a chunk
VARIANTS = ["llama-default", "qwen2", "qwen3"]


class Watched(Method):
    """Notes what each layer retrieves for each chunk, and what is known of its blocks."""

    def __init__(self, *given):
        super().__init__(*given)
        self.found, self.noted, self.rows_of = {}, {}, {}

    def choose(self, layer, read, index):
        chosen = super().choose(layer, read, index)
        if not self.answering:
            self.found.setdefault(layer.index, []).append(chosen.blocks.tolist())
        self.rows_of[layer.index] = index
        return chosen

    def note(self, layer, maps):
        notes = super().note(layer, maps)
        self.noted.setdefault(layer.index, []).extend(notes["spans"].tolist())
        return notes

    def recall(self):
        fork = super().recall()
        fork.found, fork.noted, fork.rows_of = {}, {}, {}
        return fork


def settings_of(o: Options) -> transcription.Settings:
    sizes = (o.first, o.local, o.block, o.chunk, o.retrieved, o.spans, o.vectors)
    heads = {1: (3, 0.3), 2: (0, 0.3), 3: (1, 0.5)}
    return transcription.Settings(*sizes, o.theta, o.phi, o.lam, o.ratio, heads, 4)


KEEPING = {"answering": True}  # an answer keeps the blocks of its question
RUNS = Runs(transcription, settings_of, Watched, OPTIONS, IDS, QUESTION, 3, KEEPING)
read, answer, transcribed_answer = RUNS.read, RUNS.answer, RUNS.transcribed_answer


def make(make_model, name, **changes):
    return float64_model(make_model, name, num_hidden_layers=5, **changes)


@pytest.fixture(scope="module")
def of_variant(make_model):
    """f(name) -> a model, what we read with it, and what the transcription did; made once."""

    @cache
    def made(name):
        model = make(make_model, name)
        return model, *read(model), *transcribed_answer(model)

    return made


@pytest.fixture(params=VARIANTS)
def both(request, of_variant):
    return of_variant(request.param)


@pytest.fixture
def llama(of_variant):
    return of_variant(VARIANTS[0])


# --- reading and answering ---


def retrieved(reading, since, layer):
    """What a layer of the transcription retrieved, chunk after chunk."""
    found = sorted(reading.retrievals.items(), key=lambda item: item[0])
    return [x.blocks for (chunk, index), x in found if index == layer and chunk >= since]


def test_the_same_blocks_are_retrieved_for_every_chunk(both):
    _, decoder, method, _, _, reading, asked, _ = both
    _, memory = answer(decoder, method)
    for layer in range(5):
        assert method.found[layer] == retrieved(reading, 0, layer)
        assert memory.found[layer] == retrieved(asked, reading.chunks, layer)
        assert len(method.found[layer]) == reading.chunks - 1


def test_spans_and_their_vectors_are_the_transcriptions(both):
    _, _, method, *_, reading, _, _ = both
    for layer in (1, 2, 3):
        sums, there = (method.rows_of[layer][name] for name in ("sums", "there"))
        assert len(sums) == len(reading.blocks[layer]) < len(method.noted[layer])
        for b, block in enumerate(reading.blocks[layer]):
            noted = [tuple(span) for span in method.noted[layer][b] if span[2]]
            assert noted == [(s.x, s.y, len(s.tokens)) for s in block.spans]
            assert there[b].tolist() == [n < len(noted) for n in range(3)]
            for n, span in enumerate(block.spans):
                assert np.abs(sums[b, n].numpy() - sum(span.vectors)).max() < 1e-6


def test_block_vectors_below_the_first_retrieval_head_are_the_transcriptions(both):
    _, _, method, *_, reading, _, _ = both
    ours = method.rows_of[0]["vectors"]
    expected = np.array([block.mean for block in reading.blocks[0]])
    assert np.abs(ours.numpy() - expected).max() < 1e-6
    assert method.rows_of[4] == {}


def test_the_comparison_is_not_vacuous(llama):
    _, _, method, _, _, reading, *_ = llama
    blocks = len(reading.blocks[1])
    assert blocks == (PREFIX + DOCUMENT - 5 - 24) // 8 > 2 * OPTIONS.retrieved
    last = [tuple(method.found[layer][-1]) for layer in range(5)]
    assert last[3] == last[4]  # a layer without a head goes by the votes so far
    assert len(set(last)) >= 3
    own = [x for (_, layer), x in reading.retrievals.items() if layer == 3]
    assert any(x.blocks != sorted(x.own) for x in own)  # some were outvoted
    assert len({tuple(x.own) for x in own}) > 3
    lengths = {len(block.spans) for layer in (1, 2, 3) for block in reading.blocks[layer]}
    assert len(lengths) > 1


def test_logits_are_the_transcriptions_in_question_and_answer(both):
    _, decoder, method, _, expected, *_ = both
    ours, _ = answer(decoder, method)
    assert len(ours) == len(expected) == 4
    assert largest_difference(ours, expected) < 1e-5


@pytest.mark.parametrize("ratio", ["column", "row+column"])
def test_other_ratios_are_the_transcriptions(llama, ratio):
    model, options = llama[0], replace(OPTIONS, ratio=ratio)
    ours = answer(*read(model, options)[:2], steps=0)[0]
    expected = transcribed_answer(model, options, steps=0)[0]
    assert np.abs(ours[0] - expected[0]).max() < 1e-5
    assert np.abs(ours[0] - llama[4][0]).max() > 1e-6


def test_votes_for_passages_are_the_transcriptions(both):
    _, decoder, method, _, _, reading, asked, _ = both
    _, memory = answer(decoder, method)
    expected = np.zeros(DOCUMENT)
    for (chunk, _), found in asked.retrievals.items():
        for b in found.blocks if chunk >= reading.chunks else ():
            start = 5 + 8 * b - PREFIX  # the last may be of the question's own
            expected[start : start + 8] += found.votes[b]
    scores = memory.scores(DOCUMENT)
    assert np.abs(scores.raw.numpy() - expected).max() < 1e-6
    hidden = scores.pooled < 0
    assert torch.equal(hidden[:2], torch.tensor([False, False]))  # of the first tokens
    assert bool(hidden.any())
    assert not bool(hidden[torch.from_numpy(expected) > 0].any())


def test_an_answer_keeps_the_blocks_of_its_question(llama):
    _, decoder, method, *_ = llama
    _, memory = answer(decoder, method)
    few = memory.attended()
    assert few == pytest.approx(5 + 24 + 3 * 8 + 3.5, abs=4)
    found = {layer: [*chunks] for layer, chunks in memory.found.items()}
    with exact():
        decoder.read(torch.tensor([3]), memory)
    assert memory.found == found


def test_a_question_leaves_the_document_as_it_was(llama):
    _, decoder, method, *_ = llama
    first, _ = answer(decoder, method)
    again, _ = answer(decoder, method)
    assert same_to_the_bit(first, again)


def test_a_chunk_without_a_span_asks_by_all_of_its_parts(llama):
    """A token by itself has no span, where its heads' quantile is over their mean."""
    model, decoder, method, *_ = llama
    weights, settings, reading = RUNS.transcribed_reading(model)
    logits, asked = transcription.feed(weights, reading, QUESTION[:1], settings)
    asking = asked.retrievals[reading.chunks, 3].asking
    assert [(span.x, span.y, len(span.tokens)) for span in asking] == [(0, 0, 1)]
    ours, _ = answer(decoder, method, steps=0, question=QUESTION[:1])
    assert np.abs(ours[0] - logits).max() < 1e-5


# --- saving ---


def test_a_saved_state_answers_like_the_process_that_read(both):
    _, decoder, method, sink, *_ = both
    expected, there = answer(decoder, method)
    for reading in (False, True):
        restored = Method(OPTIONS, decoder.layers, WIDE)
        restored.restore(method.snapshot(), sink, reading)
        found, memory = answer(decoder, restored)
        assert same_to_the_bit(found, expected)
        assert torch.equal(memory.scores(DOCUMENT).raw, there.scores(DOCUMENT).raw)


def test_vectors_keep_their_width_beside_a_narrow_model(make_model):
    decoder = Decoder(make_model("llama-default", vocab_size=400, num_hidden_layers=5))
    method, sink, ids = Method(OPTIONS, decoder.layers), RowList(), torch.tensor(IDS)
    list(encode(decoder, method, ids[:0], [ids], sink))
    restored = Method(OPTIONS, decoder.layers, Place(dtype=torch.bfloat16))
    restored.restore(method.snapshot(), sink, reading=False)
    found = restored.snapshot()
    wide = [name for name in found if name.startswith(("index.sums", "received", "map"))]
    assert len(wide) == 3 + 5 + 3
    assert all(torch.equal(found[name], method.snapshot()[name]) for name in wide)


def test_reading_goes_on_from_a_snapshot(make_model):
    model = make(make_model, "llama-default")
    decoder, whole, rows = read(model)
    half = OPTIONS.first + OPTIONS.local + 3 * OPTIONS.chunk
    gone_on, sink = RUNS.read_on(decoder, Method, half)
    for name in rows.groups["kv"][0]:
        assert torch.equal(sink.whole("kv", name), rows.whole("kv", name))
    ours, expected = gone_on.snapshot(), whole.snapshot()
    assert {*ours} == {*expected}
    assert all(torch.equal(ours[name], x) for name, x in expected.items())


def test_a_state_of_other_heads_is_no_state_of_this_method(llama):
    _, decoder, method, sink, *_ = llama
    other = Method(replace(OPTIONS, heads=((2, 0, 0.3),)), decoder.layers, WIDE)
    with pytest.raises(StateMismatch):
        other.restore(method.snapshot(), sink, reading=False)


# --- limits ---


@pytest.mark.parametrize("name", ["llama-default", "llama-one-kv-head", "qwen3", "gpt_neox"])
def test_inside_first_and_local_it_is_full_attention(make_model, name):
    """One token above the limit it is not."""
    model = make(make_model, name)
    room = OPTIONS.first + OPTIONS.local - len(QUESTION[:9])
    decoder, method, _ = read(model, ids=IDS[:room])
    found = answer(decoder, method, 0, QUESTION[:9])[0][0]
    assert np.abs(found - own_logits(model, [*IDS[:room], *QUESTION[:9]])[-1]).max() < 1e-4
    decoder, method, _ = read(model, ids=IDS[:room])
    found = answer(decoder, method, 0, QUESTION[:10])[0][0]
    assert np.abs(found - own_logits(model, [*IDS[:room], *QUESTION[:10]])[-1]).max() > 1e-4


def test_layers_with_a_sliding_window_retrieve_nothing(make_model):
    model = make(make_model, "mistral-window")
    with pytest.raises(UsageError, match="only those with full attention"):
        read(model)


def test_fewer_blocks_are_retrieved_where_the_window_is_short():
    assert OPTIONS.fitted(5 + 24 + 7 + 16).retrieved == 2
    assert OPTIONS.fitted(10_000) == OPTIONS


def test_where_there_can_be_no_heads_the_user_is_told_so():
    with pytest.raises(UsageError, match=r"only layers with full attention.*longctx calibrate"):
        ltri.Options().fitted(10_000)
    with pytest.raises(UsageError, match="no retrieval head 9 in layer 1"):
        ltri.best_heads(((1, 9, 0.3),), ())
    with pytest.raises(UsageError, match="has 2 values"):
        ltri.of_layers("theta", (0.8, 0.9), 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spans": 6}, "spans: expected 1 to vectors"),
        ({"ratio": "rows"}, "ratio: expected one of row"),
        ({"theta": 1.5}, "theta: expected 0 to 1"),
        ({"phi": (0.1, -1.0)}, "phi: expected 0 to 1"),
        ({"lam": -1.0}, "lam: expected 0 to inf"),
        ({"heads": ((0, 1, float("nan")),)}, "heads: expected copy scores of 0 to 1"),
    ],
)
def test_options_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(OPTIONS, **changes)


def test_lambda_is_20_in_the_first_four_layers_and_3_above(make_model):
    layers = Decoder(make_model("llama-default", num_hidden_layers=6)).layers
    method = Method(replace(OPTIONS, lam=None, theta=0.9, phi=0.1), layers)
    assert method._lam == (20.0,) * 4 + (3.0,) * 2


def test_a_chunk_is_divided_where_blocks_meet():
    assert parts(0, 16, 8) == [(slice(0, 2), slice(0, 8))]
    assert parts(6, 2, 8) == [(slice(0, 1), slice(6, 8))]
    assert parts(3, 2, 8) == [(slice(0, 1), slice(3, 5))]
    ends = [(slice(0, 1), slice(6, 8)), (slice(1, 3), slice(0, 8)), (slice(3, 4), slice(0, 3))]
    assert parts(6, 21, 8) == ends


# --- mutations ---


def difference(llama, monkeypatch, where, name, mutant):
    model, _, _, _, expected, *_ = llama
    monkeypatch.setattr(where, name, mutant)
    found = answer(*read(model, cls=Method)[:2])[0]
    return largest_difference(found, expected)


def test_the_head_of_another_key_is_noticed(llama, monkeypatch):
    original = Method.index

    def wrong(self, layer, keys, received, notes):
        return original(self, layer, keys.flip(2), received, notes)

    assert difference(llama, monkeypatch, Method, "index", wrong) > 1e-4


def test_original_positions_are_noticed(llama, monkeypatch):
    original = retrieving.at_one_distance

    def wrong(near, q, keys, values, distance, length):
        return original(near, q, keys, values, distance + 9, length)

    assert difference(llama, monkeypatch, retrieving, "at_one_distance", wrong) > 1e-4


def test_a_threshold_above_the_diagonal_is_noticed(llama, monkeypatch):
    def wrong(summed, threshold):
        lowered = summed - threshold[:, None, None]
        monkeypatch.setattr(span_boxes_ref, "triangle", everywhere)
        return span_boxes_ref.span_boxes(lowered, torch.zeros_like(threshold))

    def everywhere(summed):
        return summed.cumsum(1).flip(2).cumsum(2).flip(2)

    assert difference(llama, monkeypatch, spans, "span_boxes", wrong) > 1e-4


def test_ties_of_votes_the_other_way_are_noticed(llama, monkeypatch):
    original = spans.best

    def wrong(scores, count, votes=None):
        return original(scores if votes is None else -scores, count, votes)

    assert difference(llama, monkeypatch, spans, "best", wrong) > 1e-4


def test_retrieving_anew_for_each_token_of_the_answer_is_noticed(llama, monkeypatch):
    class Anew(Method):
        answering = property(lambda self: False, lambda self, value: None)

    model, _, _, _, expected, *_ = llama
    found = answer(*read(model, cls=Anew)[:2])[0]
    assert np.abs(found[-1] - expected[-1]).max() > 1e-4
    assert np.abs(found[0] - expected[0]).max() < 1e-5
