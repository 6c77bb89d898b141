"""ReAttention against its literal transcription, at its limits, and against mutations of itself."""

from dataclasses import replace

import numpy as np
import pytest
import reattention_transcription as transcription
import torch
from float64_models import (
    ORDER,
    WIDE,
    float64_model,
    largest_difference,
    own_logits,
    same_to_the_bit,
)
from retrieving_runs import PREFIX, Runs
from row_list import RowList

from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.memory import Place
from longctx.core.kv import keys as keys_module
from longctx.core.methods import reattention
from longctx.core.methods.reattention import Method, Options
from longctx.core.model.adapter import Decoder
from longctx.kernels import select_window_ref, topk_scan_ref

OPTIONS = Options(first=5, local=24, chunk=12, top_k=2, voted=6, span=4, gather=40)
DOCUMENT = 150
IDS, QUESTION = ORDER[: PREFIX + DOCUMENT], ORDER[200:217]
VARIANTS = ["llama-default", "qwen2", "qwen3", "mistral-window"]
EVERYTHING = replace(OPTIONS, top_k=200, voted=200, span=1)


class Watched(Method):
    """Notes the tokens that each layer selects for each chunk."""

    def __init__(self, *given):
        super().__init__(*given)
        self.chosen = {}

    def _selected(self, layer, q, kv, near):
        index = near.tokens[: int(near.total)].tolist()
        o = self.options
        key = len([k for k in self.chosen if k[1] == layer.index]), layer.index
        self.chosen[key] = index[o.first : len(index) - o.local]
        return super()._selected(layer, q, kv, near)


def settings_of(o: Options) -> transcription.Settings:
    return transcription.Settings(o.first, o.local, o.chunk, o.top_k, o.voted, o.span)


RUNS = Runs(transcription, settings_of, Watched, OPTIONS, IDS, QUESTION, steps=3)
read, answer, transcribed_answer = RUNS.read, RUNS.answer, RUNS.transcribed_answer
difference = RUNS.difference_of_mutant


@pytest.fixture(scope="module", params=VARIANTS)
def both(request, make_model):
    model = float64_model(make_model, request.param)
    return model, *read(model), *transcribed_answer(model)


# --- reading and answering ---


def test_the_same_tokens_are_selected_for_every_chunk(both):
    """In all layers but the last, whose attention nothing needs while a document is read."""
    _, _, method, _, _, reading, *_ = both
    needed = {at: s for at, s in reading.selections.items() if at[1] < method.depth - 1}
    expected = [s.tokens for _, s in sorted(needed.items(), key=lambda e: e[0][::-1])]
    ours = [tokens for _, tokens in sorted(method.chosen.items(), key=lambda e: e[0][::-1])]
    assert ours == expected
    assert {layer for _, layer in method.chosen} == {layer for _, layer in needed}


def test_the_comparison_is_not_vacuous(make_model):
    _, method, _ = read(float64_model(make_model, "llama-default"))
    last = max(chunk for chunk, _ in method.chosen)
    sets = [tuple(tokens) for (chunk, _), tokens in method.chosen.items() if chunk == last]
    assert len(set(sets)) == len(sets) == 3  # layers select sets of their own
    middle = PREFIX + DOCUMENT - OPTIONS.first - OPTIONS.local
    assert all(0 < len(tokens) < middle / 2 for tokens in sets)


def test_keys_and_values_are_the_transcriptions(both):
    _, _, method, sink, _, reading, *_ = both
    snapshot = method.snapshot()
    for layer in {layer for _, layer in reading.selections}:
        for name in ("keys", "values"):
            tensor = f"{name}.{layer}"
            ours = torch.cat([snapshot[tensor], sink.whole("kv", tensor)])
            expected = np.array(getattr(reading, name)[layer]).transpose(1, 0, 2)
            assert ours.shape == expected.shape
            assert np.abs(ours.numpy() - expected).max() < 1e-6


def test_logits_are_the_transcriptions_in_question_and_answer(both):
    _, decoder, method, _, expected, *_ = both
    ours, _ = answer(decoder, method)
    assert len(ours) == len(expected) == 4
    assert largest_difference(ours, expected) < 1e-5


def test_votes_for_passages_are_the_transcriptions(both):
    _, decoder, method, _, _, reading, asked, answered = both
    _, memory = answer(decoder, method)
    votes = transcription.passage_votes(reading, asked, answered)
    expected = [votes.get(PREFIX + n, 0) for n in range(DOCUMENT)]
    assert memory.scores(DOCUMENT).raw.tolist() == pytest.approx(expected)
    assert sum(expected) > 0 or not reading.selections
    assert len(memory.scores(DOCUMENT + 9).raw) == DOCUMENT  # more than were read: damage


def test_a_question_leaves_the_document_as_it_was(both):
    _, decoder, method, *_ = both
    first, _ = answer(decoder, method)
    again, _ = answer(decoder, method)
    assert same_to_the_bit(first, again)


def test_a_saved_state_answers_like_the_process_that_read(both):
    _, decoder, method, sink, *_ = both
    expected, there = answer(decoder, method)
    for reading in (False, True):
        restored = Method(OPTIONS, decoder.layers, WIDE)
        restored.restore(method.snapshot(), sink, reading)
        found, memory = answer(decoder, restored)
        assert same_to_the_bit(found, expected)
        assert torch.equal(memory.scores(DOCUMENT).raw, there.scores(DOCUMENT).raw)


@pytest.mark.parametrize("name", ["llama-default", "mistral-window"])
def test_reading_goes_on_from_a_snapshot(make_model, name):
    model = float64_model(make_model, name)
    decoder, whole, rows = read(model)
    half = OPTIONS.first + OPTIONS.local + 5 * OPTIONS.chunk
    gone_on, sink = RUNS.read_on(decoder, Method, half)
    for name in rows.groups["kv"][0]:
        assert torch.equal(sink.whole("kv", name), rows.whole("kv", name))
    ours, expected = answer(decoder, gone_on)[0], answer(decoder, whole)[0]
    assert same_to_the_bit(ours, expected)


# --- limits ---


@pytest.mark.parametrize("name", ["llama-default", "llama-one-kv-head", "qwen3", "gpt_neox"])
def test_inside_first_and_local_it_is_full_attention(make_model, name):
    model = float64_model(make_model, name)
    room = OPTIONS.first + OPTIONS.local - len(QUESTION)
    decoder, method, _ = read(model, ids=IDS[:room])
    found = answer(decoder, method, steps=0)[0][0]
    assert np.abs(found - own_logits(model, [*IDS[:room], *QUESTION])[-1]).max() < 1e-4


def test_while_the_spans_cover_the_middle_it_is_full_attention(make_model):
    model = float64_model(make_model, "llama-default")
    decoder, method, _ = read(model, EVERYTHING)
    found = answer(decoder, method, steps=0)[0][0]
    assert method.chosen
    assert np.abs(found - own_logits(model, [*IDS, *QUESTION])[-1]).max() < 1e-4


def test_above_the_limit_it_is_not(make_model):
    """`voted` tokens of one-token spans above `first + local` are all selected; one more is not."""
    model = float64_model(make_model, "llama-default")
    options = replace(OPTIONS, span=1)
    limit = options.first + options.local + options.voted - len(QUESTION)
    differences = []
    for count in (limit, limit + 1):
        decoder, method, _ = read(model, replace(options, top_k=8), ids=IDS[:count])
        found = answer(decoder, method, steps=0)[0][0]
        differences.append(np.abs(found - own_logits(model, [*IDS[:count], *QUESTION])[-1]).max())
    assert differences[0] < 1e-4 < 1e-3 < differences[1]


def test_every_architecture_is_itself_where_every_key_is_selected(make_model, even_architecture):
    model = make_model(even_architecture, vocab_size=400)  # float32: some have no float64
    ids = IDS[:70]
    narrow = read(model, place=Place(), ids=ids)[:2]
    wide = replace(OPTIONS, top_k=60, voted=60, span=1, chunk=24)
    decoder, method, _ = read(model, wide, place=Place(), ids=ids)
    everything, some = (answer(*given, steps=2)[0] for given in ((decoder, method), narrow))
    assert all(np.isfinite(logits).all() for logits in (*everything, *some))
    selecting = any(layer.window is None for layer in decoder.layers)
    assert bool(method.chosen) == selecting
    if selecting:
        assert np.abs(everything[0] - some[0]).max() > 1e-3
    # Frequencies that depend on the length are those of the longest window once keys are selected.
    if "dynamic" not in even_architecture and "longrope" not in even_architecture:
        truth = own_logits(model, [*ids, *QUESTION])[-1]
        assert np.abs(everything[0] - truth).max() < 1e-3 * max(1.0, np.abs(truth).max())


# --- mutations ---


def test_another_map_of_query_heads_to_key_heads_is_noticed(make_model, monkeypatch):
    def wrong(q, keys, k, scales=None):
        H, G = q.shape[0], keys.shape[1]
        order = torch.arange(H).view(G, H // G).T.flatten()  # head h reads h % G
        return topk_scan_ref.topk_scan(q[order], keys, k, scales)

    assert difference(make_model, monkeypatch, keys_module, "topk_scan", wrong) > 1e-3


def test_original_positions_are_noticed(make_model, monkeypatch):
    def original(self, layer, q, kv, near):
        n, S = int(near.total), kv.keys.length
        index = near.tokens[:n]
        q = layer.rotate(q, slice(S - q.shape[1], S), S)
        k = layer.rotate(kv.keys.gather(index).transpose(0, 1), index, S)
        return layer.attention(q, k, kv.values.gather(index).transpose(0, 1))

    assert difference(make_model, monkeypatch, Method, "_selected", original) > 1e-3


def test_voting_by_score_alone_is_noticed(make_model, monkeypatch):
    def by_score(votes, *given):
        return select_window_ref.select_window((votes > 0).int(), *given)

    assert difference(make_model, monkeypatch, reattention, "select_window", by_score) > 1e-3


def test_ties_of_votes_go_to_the_better_score_then_to_the_earlier_key():
    votes = torch.tensor([1, 3, 2, 2, 2, 0, 2], dtype=torch.int32)
    best = torch.tensor([9.0, -1.0, 0.5, 2.0, 0.5, 7.0, 0.5])
    assert select_window_ref.most_voted(votes, best, 3).tolist() == [1, 2, 3]
    assert select_window_ref.most_voted(votes, best, 4).tolist() == [1, 2, 3, 4]
    assert select_window_ref.most_voted(votes, best, 9).tolist() == [0, 1, 2, 3, 4, 6, 7, 7, 7]


def test_equal_keys_are_chosen_from_the_earliest_on():
    q, keys = torch.ones(2, 3, 4), torch.ones(300, 1, 4)
    top = topk_scan_ref.topk_scan(q, keys, 4)
    assert top.votes.nonzero().flatten().tolist() == [0, 1, 2, 3]


# --- how it is kept ---


def test_int8_is_close_and_survives_saving_to_the_bit(make_model):
    model = float64_model(make_model, "llama-default")
    options = replace(OPTIONS, kv_dtype="int8")
    decoder, method, sink = read(model, options)
    dtypes = {name: x.dtype for name, x in sink.groups["kv"][0].items()}
    assert {dtypes["keys.0"], dtypes["values.3"]} == {torch.int8}
    assert {dtypes["keys.0.scales"], dtypes["values.3.scales"]} == {torch.float16}
    expected = answer(decoder, method)[0]
    restored = Method(options, decoder.layers, WIDE)
    restored.restore(method.snapshot(), sink, reading=False)
    found = answer(decoder, restored)[0]
    assert same_to_the_bit(found, expected)
    exact_logits = answer(*read(model)[:2])[0]
    assert 0 < np.abs(expected[0] - exact_logits[0]).max() < 0.5 * np.abs(exact_logits[0]).max()


ALL = PREFIX + DOCUMENT


@pytest.mark.parametrize(
    ("room", "tokens", "near"),  # all in tokens of keys; `near`: keys and values on the device
    [
        (0, 0, (0, 0)),
        (20, 0, (20, 0)),
        (70, ALL, (70, 0)),
        (3 * ALL, ALL, (ALL, ALL)),
        (80, 30, (40, 40)),  # more come than were said
    ],
)
def test_what_does_not_fit_the_device_is_in_host_memory(
    make_model, monkeypatch, room, tokens, near
):
    monkeypatch.setattr("longctx.core.kv.host_memory.ROWS", 16)
    monkeypatch.setattr("longctx.core.kv.hosted.LEAVE", 4)
    model = float64_model(make_model, "llama-default")
    width = 4 * 2 * 8 * 8  # bytes of a token's keys over the layers
    expected = answer(*read(model)[:2])[0]
    tight = Place(dtype=torch.float64, room=room * width, tokens=tokens)
    decoder, method, _ = read(model, place=tight)
    kept = method.kept_layer(0)
    assert tuple(column._near.length for column in kept) == near
    assert largest_difference(answer(decoder, method)[0], expected) < 1e-9


def test_a_state_of_another_model_is_refused(make_model):
    decoder, method, sink = read(float64_model(make_model, "llama-default"))
    snapshot = method.snapshot()
    fewer = Decoder(float64_model(make_model, "llama-default", num_hidden_layers=3))
    changed = [
        (fewer.layers, snapshot, sink),
        (decoder.layers, {k: v for k, v in snapshot.items() if k != "keys.2"}, sink),
        (decoder.layers, {**snapshot, "seen": snapshot["seen"] + 1}, sink),
        (decoder.layers, {**snapshot, "more": snapshot["seen"]}, sink),
        (decoder.layers, snapshot, RowList({"kv": sink.groups["kv"][:-1]})),
    ]
    for layers, given, rows in changed:
        with pytest.raises(StateMismatch):
            Method(OPTIONS, layers, WIDE).restore(given, rows, reading=False)


# --- options ---


def test_the_papers_window_is_8192():
    assert Options().window == 8192


def test_fewer_keys_are_selected_where_the_window_is_smaller():
    assert Options().fitted(8192) == Options()
    assert Options(local=1024).fitted(4096) == Options(local=1024, voted=95)
    with pytest.raises(UsageError, match="4096"):
        Options().fitted(4096)


@pytest.mark.parametrize(
    "wrong", [{"chunk": 99}, {"local": 0}, {"top_k": 0}, {"first": -1}, {"kv_dtype": "int4"}]
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        replace(OPTIONS, **wrong)
