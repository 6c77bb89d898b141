"""InfLLM against its literal transcription, at its limits, and against mutations of itself."""

from dataclasses import replace

import infllm_transcription as transcription
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
from longctx.core.kv import retrieving
from longctx.core.kv.streaming_window import Both, attention_lse
from longctx.core.methods import infllm
from longctx.core.methods.infllm import Method, Options
from longctx.core.model.adapter import Decoder
from longctx.kernels.merged_attention_ref import merged_attention as merged

SIZES = {"first": 5, "local": 16, "block": 4, "chunk": 8, "retrieved": 3, "cached": 5, "gather": 40}
OPTIONS = Options(**SIZES, vectors=2, run=0, in_order=False)  # as in the paper
DOCUMENT = 105
IDS, QUESTION = ORDER[: PREFIX + DOCUMENT], ORDER[200:211]
VARIANTS = ["llama-default", "qwen2", "qwen3", "mistral-window"]


class Watched(Method):
    """Notes the blocks that each layer retrieves for each chunk."""

    def __init__(self, *given):
        super().__init__(*given)
        self.chosen = {}

    def choose(self, layer, read, index):
        chosen = super().choose(layer, read, index)
        chunk = len([key for key in self.chosen if key[1] == layer.index])
        self.chosen[chunk, layer.index] = chosen.blocks.tolist()
        return chosen


def settings_of(o: Options) -> transcription.Settings:
    return transcription.Settings(o.first, o.local, o.block, o.chunk, o.retrieved, o.vectors)


RUNS = Runs(transcription, settings_of, Watched, OPTIONS, IDS, QUESTION, steps=6)
read, answer, transcribed_answer = RUNS.read, RUNS.answer, RUNS.transcribed_answer
difference = RUNS.difference_of_mutant


@pytest.fixture(scope="module", params=VARIANTS)
def both(request, make_model):
    model = float64_model(make_model, request.param)
    return model, *read(model), *transcribed_answer(model)


# --- reading and answering ---


def test_the_same_blocks_are_retrieved_for_every_chunk(both):
    _, decoder, method, _, _, reading, _, answered = both

    def order(found):
        return [found[key] for key in sorted(found, key=lambda key: key[::-1])]

    expected = {key: retrieval.blocks for key, retrieval in reading.retrievals.items()}
    assert order(method.chosen) == order(expected)
    method.chosen.clear()
    answer(decoder, method)
    after = {key: r.blocks for key, r in answered.retrievals.items() if key not in expected}
    assert order(method.chosen) == order(after)
    gaps = [retrieval.gap for retrieval in answered.retrievals.values()]
    assert min(gaps, default=1) > 1e-7


def test_the_comparison_is_not_vacuous(both):
    reading = both[5]
    if not reading.retrievals:  # all layers have a sliding window
        return
    blocks = OPTIONS.left(PREFIX + DOCUMENT)
    last = max(chunk for chunk, _ in reading.retrievals)
    sets = [tuple(reading.retrievals[last, layer].blocks) for layer in range(4)]
    assert len(set(sets)) > 1  # layers retrieve sets of their own
    assert all(len(chosen) == 3 < blocks / 2 for chosen in sets)
    assert OPTIONS.left(PREFIX + DOCUMENT + len(QUESTION) + 6) > blocks  # some leave on the way


def test_index_vectors_are_the_transcriptions(both):
    _, _, method, _, _, reading, *_ = both
    snapshot = method.snapshot()
    for layer in {layer for _, layer in reading.retrievals}:
        ours, expected = snapshot[f"index.vectors.{layer}"], np.array(reading.vectors[layer])
        assert ours.shape == expected.shape
        assert np.abs(ours.numpy() - expected).max() < 1e-9
        start = OPTIONS.start(PREFIX + DOCUMENT)
        received = np.array(reading.received[layer])[:, start:]
        assert np.abs(snapshot[f"received.{layer}"].numpy() - received).max() < 1e-9


def test_heads_choose_keys_of_their_own(both):
    best = [block for layer in both[5].best for block in layer]
    assert any(heads[0] != heads[1] for heads in best) or not best  # of one key/value head


def test_logits_are_the_transcriptions_in_question_and_answer(both):
    _, decoder, method, _, expected, *_ = both
    ours, _ = answer(decoder, method)
    assert largest_difference(ours, expected) < 1e-8


def test_votes_for_passages_are_the_transcriptions(both):
    _, decoder, method, _, _, reading, asked, _ = both
    _, memory = answer(decoder, method)
    votes = transcription.block_votes(reading, asked)
    scores = memory.scores(DOCUMENT)
    near = OPTIONS.start(PREFIX + DOCUMENT + min(len(QUESTION), OPTIONS.chunk))
    for n in range(DOCUMENT):
        block = (PREFIX + n - OPTIONS.first) // OPTIONS.block
        expected = votes.get(block, 0)
        outside = OPTIONS.first <= PREFIX + n < near
        assert scores.raw[n] == expected
        assert scores.pooled[n] == (-1 if outside and not expected else expected)
    assert sum(votes.values()) > 0 or not reading.retrievals


def test_a_question_leaves_the_document_as_it_was(both):
    _, decoder, method, *_ = both
    before = {name: x.clone() for name, x in method.snapshot().items()}
    first, _ = answer(decoder, method)
    again, _ = answer(decoder, method)
    assert same_to_the_bit(first, again)
    after = method.snapshot()
    assert before.keys() == after.keys()
    assert all(torch.equal(x, after[name]) for name, x in before.items())


def test_a_saved_state_answers_like_the_process_that_read(both):
    _, decoder, method, sink, *_ = both
    expected, there = answer(decoder, method)
    for reading in (False, True):
        restored = Method(OPTIONS, decoder.layers, WIDE)
        restored.restore(method.snapshot(), sink, reading)
        for _ in range(2):  # the second time blocks are in the cache
            found, memory = answer(decoder, restored)
            assert same_to_the_bit(found, expected)
            assert torch.equal(memory.scores(DOCUMENT).raw, there.scores(DOCUMENT).raw)
            assert memory.attended() == there.attended()
            assert memory.kept == there.kept


@pytest.mark.parametrize("name", ["llama-default", "mistral-window"])
def test_reading_goes_on_from_a_snapshot(make_model, name):
    model = float64_model(make_model, name)
    decoder, whole, rows = read(model)
    half = OPTIONS.first + OPTIONS.local + 5 * OPTIONS.chunk
    gone_on, sink = RUNS.read_on(decoder, Method, half)
    for name in rows.groups["kv"][0]:
        assert torch.equal(sink.whole("kv", name), rows.whole("kv", name))
    after, expected = gone_on.snapshot(), whole.snapshot()
    assert after.keys() == expected.keys()
    assert all(torch.equal(x, expected[name]) for name, x in after.items())


# --- limits ---


@pytest.mark.parametrize("name", ["llama-default", "llama-one-kv-head", "qwen3", "gpt_neox"])
def test_inside_first_and_local_it_is_full_attention(make_model, name):
    model = float64_model(make_model, name)
    room = OPTIONS.first + OPTIONS.local - len(QUESTION)
    differences = []
    for count in (room, room + 1):
        decoder, method, _ = read(model, ids=IDS[:count])
        found = answer(decoder, method, steps=0)[0][0]
        differences.append(np.abs(found - own_logits(model, [*IDS[:count], *QUESTION])[-1]).max())
    assert differences[0] < 1e-4 < 1e-3 < differences[1]


def test_every_architecture_is_itself_inside_the_limit_and_finite_above(
    make_model, odd_architecture
):
    model = make_model(odd_architecture, vocab_size=400)  # float32: some have no float64
    ids = IDS[:60]
    wide = replace(OPTIONS, local=160, chunk=32)
    decoder, method, _ = read(model, wide, place=Place(), ids=ids)
    everything = answer(decoder, method, steps=2)[0]
    decoder, method, _ = read(model, place=Place(), ids=ids)
    some = answer(decoder, method, steps=2)[0]
    assert all(np.isfinite(logits).all() for logits in (*everything, *some))
    retrieving = any(layer.window is None for layer in decoder.layers)
    assert bool(method.chosen) == retrieving
    # Where frequencies depend on the length, a question changes them for what was read before it.
    if "dynamic" not in odd_architecture and "longrope" not in odd_architecture:
        truth = own_logits(model, [*ids, *QUESTION])[-1]
        assert np.abs(everything[0] - truth).max() < 1e-3 * max(1.0, np.abs(truth).max())
    if retrieving:
        assert np.abs(everything[0] - some[0]).max() > 1e-3


# --- mutations ---


def test_another_map_of_query_heads_to_key_heads_is_noticed(make_model, monkeypatch):
    right = infllm.representatives

    def wrong(keys, received, count):
        H, G = received.shape[1], keys.shape[2]
        order = torch.arange(H) % G  # head h reads h % G
        return right(keys[:, :, order], received, count)

    assert difference(make_model, monkeypatch, infllm, "representatives", wrong) > 1e-3


def test_original_positions_are_noticed(make_model, monkeypatch):
    def original(near, q, k, v, distance, length):
        """Far tokens at distances of their own, the last of them at the one of all."""
        layer, S, T = near.layer, k.shape[1], q.shape[1]
        length = length + S
        q = layer.rotate(q, torch.full((T,), distance + S - 1), length)
        k = layer.rotate(k, slice(0, S), length)
        out, lse = attention_lse(layer, q, k, v, causal=False)
        return Both(layer, q, k, *merged(out, lse, near.out, near.lse))

    assert difference(make_model, monkeypatch, retrieving, "at_one_distance", original) > 1e-3


def test_another_distance_is_noticed(make_model, monkeypatch):
    right = retrieving.at_one_distance

    def nearer(near, q, k, v, distance, length):
        return right(near, q, k, v, distance - 1, length)

    assert difference(make_model, monkeypatch, retrieving, "at_one_distance", nearer) > 1e-4


def test_blocks_in_another_order_of_ties_are_noticed():
    q, vectors = torch.ones(2, 3, 4), torch.ones(9, 2, 4)
    vectors[6] = 2
    assert infllm.best_blocks(q, vectors, 3).tolist() == [0, 1, 6]
    assert infllm.best_blocks(q, vectors, 20).tolist() == list(range(9))


def test_representatives_by_hand():
    keys = torch.arange(8.0).reshape(1, 4, 2, 1)  # token n: head 0 has 2 n, head 1 has 2 n + 1
    received = torch.tensor([[[0, 5, 1, 2], [3, 0, 3, 3], [1, 1, 1, 1], [0, 0, 0, 9]]]).float()
    found = infllm.representatives(keys, received, 2)
    assert found[0, :, 0].tolist() == [(2 + 6) / 2, (0 + 4) / 2, (1 + 3) / 2, (7 + 1) / 2]


def test_scores_are_of_the_mean_query_and_all_heads():
    q = torch.tensor([[[1.0], [3.0]], [[0.0], [-2.0]]])  # means 2 and -1
    vectors = torch.tensor([[[1.0], [0.0]], [[2.0], [5.0]], [[0.0], [-3.0]]])  # 2, -1, 3
    assert infllm.best_blocks(q, vectors, 1).tolist() == [2]
    assert infllm.best_blocks(q, vectors, 2).tolist() == [0, 2]


# --- how it is kept ---


class Counted(RowList):
    """Notes the rows that are taken of each layer; refuses what a document on disk refuses."""

    def __init__(self, groups):
        super().__init__(groups)
        self.taken = []

    def of_layer(self, layer):
        return [row for index, rows in self.taken for row in rows if index == layer]

    def take(self, group, rows, names=None):
        if len(rows):
            if rows[-1] >= sum(len(part["keys.0"]) for part in self.groups[group]):
                raise ValueError("no such row")
            self.taken.append((int(names[0].split(".")[1]), rows.tolist()))
        return super().take(group, rows, names)


def test_blocks_are_read_when_they_are_retrieved(make_model):
    decoder, method, sink = read(float64_model(make_model, "llama-default"))
    stored, restored = Counted(sink.groups), Watched(OPTIONS, decoder.layers, WIDE)
    restored.restore(method.snapshot(), stored, reading=False)
    start = OPTIONS.start(PREFIX + DOCUMENT) - PREFIX
    edges = {*range(OPTIONS.first - PREFIX), *range(start, DOCUMENT)}
    assert all({*stored.of_layer(layer)} == edges for layer in range(4))
    stored.taken.clear()
    answer(decoder, restored, steps=0)
    on_disk = OPTIONS.left(PREFIX + DOCUMENT)
    for layer in range(4):
        chosen = [blocks for (_, at), blocks in restored.chosen.items() if at == layer]
        rows = stored.of_layer(layer)
        of_rows = {(row + PREFIX - OPTIONS.first) // OPTIONS.block for row in rows}
        assert of_rows == {block for blocks in chosen for block in blocks if block < on_disk}
        assert 0 < len(of_rows) < on_disk / 2
    caches = [kv.on_disk.cache for kv in restored._kept._layers.values()]
    assert all(len(cache.worth) <= OPTIONS.cached for cache in caches)
    assert all(max(cache.worth.values()) > 0 for cache in caches)


def test_a_cache_of_all_blocks_reads_each_of_them_once(make_model):
    options = replace(OPTIONS, cached=40)
    decoder, method, sink = read(float64_model(make_model, "llama-default"), options)
    stored, restored = Counted(sink.groups), Method(options, decoder.layers, WIDE)
    restored.restore(method.snapshot(), stored, reading=False)
    stored.taken.clear()
    for _ in range(2):
        answer(decoder, restored)
    for layer in range(4):
        rows = stored.of_layer(layer)
        assert len(rows) == len({*rows}) > 0


@pytest.mark.parametrize("kv_dtype", ["int8", "bf16"])
def test_other_dtypes_are_close_and_survive_saving_to_the_bit(make_model, kv_dtype):
    model = float64_model(make_model, "llama-default")
    options = replace(OPTIONS, kv_dtype=kv_dtype)
    decoder, method, sink = read(model, options)
    expected = answer(decoder, method)[0]
    restored = Method(options, decoder.layers, WIDE)
    restored.restore(method.snapshot(), sink, reading=False)
    found = answer(decoder, restored)[0]
    assert same_to_the_bit(found, expected)
    exact_logits = answer(*read(model)[:2])[0]
    assert 0 < np.abs(expected[0] - exact_logits[0]).max() < 0.5 * np.abs(exact_logits[0]).max()


def test_blocks_may_lie_in_host_memory(make_model):
    model = float64_model(make_model, "llama-default")
    expected = answer(*read(model)[:2])[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longctx.core.kv.host_memory.ROWS", 16)
        patch.setattr("longctx.core.kv.hosted.LEAVE", 4)
        decoder, method, _ = read(model, place=Place(dtype=torch.float64, room=0))
        found = answer(decoder, method)[0]
    assert largest_difference(found, expected) < 1e-9


def test_a_state_of_another_model_is_refused(make_model):
    decoder, method, sink = read(float64_model(make_model, "llama-default"))
    snapshot = method.snapshot()
    fewer = Decoder(float64_model(make_model, "llama-default", num_hidden_layers=3))
    changed = [
        (fewer.layers, snapshot),
        (decoder.layers, {k: v for k, v in snapshot.items() if k != "keys.2"}),
        (decoder.layers, {k: v for k, v in snapshot.items() if k != "index.vectors.2"}),
        (decoder.layers, {**snapshot, "seen": snapshot["seen"] + 1}),
        (decoder.layers, {**snapshot, "received.1": snapshot["received.1"][:1]}),
        (decoder.layers, {**snapshot, "more": snapshot["seen"]}),
    ]
    for layers, given in changed:
        with pytest.raises(StateMismatch):
            Method(OPTIONS, layers, WIDE).restore(given, Counted(sink.groups), reading=False)


def test_sizes_are_told_before(make_model):
    def count(tensors):
        return sum(x.numel() * x.element_size() for x in tensors)

    _, method, sink = read(float64_model(make_model, "llama-default"))
    rows = count(x for part in sink.groups["kv"] for x in part.values())
    assert method.row_bytes() * DOCUMENT == rows
    saved, prefix = method.snapshot(), PREFIX * method.row_bytes()
    assert method.snapshot_bytes(PREFIX + DOCUMENT, 8) == pytest.approx(
        count(saved.values()) - prefix, rel=0.1
    )
    held = method.held_bytes(PREFIX + DOCUMENT)
    assert (held.device, held.host) == (pytest.approx(rows + count(saved.values()), rel=0.1), 0)


@pytest.mark.parametrize("tokens", [101, 1001])  # the index has room for the first, and grows
def test_filled_with_random_tokens_it_reads_on(make_model, tokens):
    decoder, method, _ = read(float64_model(make_model, "llama-default"), ids=IDS[:40])
    method.fill(tokens)
    with exact():
        hidden = decoder.read(torch.tensor(QUESTION[:8]), method)
    assert method._kept.seen == tokens + 8
    assert torch.isfinite(hidden).all()
    assert max(max(blocks) for blocks in method.chosen.values()) > tokens // 40


# --- options ---


def test_the_defaults_fit_a_window_of_8192():
    assert Options().window == 128 + 4096 + 127 + 16 * 128
    assert Options().fitted(8192) == Options()
    assert Options(local=1024).fitted(3000) == Options(local=1024, retrieved=13)
    with pytest.raises(UsageError, match="4096"):
        Options().fitted(4096)


def test_where_the_local_window_begins():
    o = OPTIONS
    assert [o.left(n) for n in (0, 21, 24, 25, 28, 29)] == [0, 0, 0, 1, 1, 2]
    assert [o.start(n) for n in (3, 21, 24, 25, 29)] == [3, 5, 5, 9, 13]


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk": 10},
        {"local": 18},
        {"local": 4, "chunk": 8},
        {"block": 0},
        {"retrieved": 0},
        {"first": -1},
        {"cached": 2},
        {"decay": 1.5},
        {"vectors": 5},
        {"kv_dtype": "int4"},
    ],
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        replace(OPTIONS, **wrong)
