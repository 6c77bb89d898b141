"""ReAttention's transcription against transformers, against cases by hand, and mutated."""

from typing import Any

import llama_transcription
import numpy as np
import pytest
import reattention_transcription as reattention
import torch
from float64_models import own_logits, weights_of
from transformers import PreTrainedModel

HEADS, GROUP = 4, 2
FAMILIES = ["llama-default", "llama-one-kv-head", "qwen2", "qwen3", "mistral-window"]
IDS = np.random.default_rng(3).integers(0, 61, 120).tolist()  # tokens recur: layer 0 has ties
QUESTION = np.random.default_rng(4).integers(0, 61, 9).tolist()


def states_of(model: PreTrainedModel, ids: list[int], kind: str) -> np.ndarray:
    """Layer 0's queries ("q") or keys ("k") before rotation, (heads, T, D)."""
    attention = model.model.layers[0].self_attn
    found: list[torch.Tensor] = []
    end = "norm" if hasattr(attention, "q_norm") else "proj"
    module = getattr(attention, f"{kind}_{end}")
    hook = module.register_forward_hook(lambda _, __, output: found.append(output))
    own_logits(model, ids)
    hook.remove()
    return found[0].reshape(len(ids), -1, attention.head_dim).transpose(0, 1).numpy()


def settings_of(**changes: int) -> reattention.Settings:
    """Small settings that leave most of the middle out."""
    numbers = {"first": 3, "local": 20, "chunk": 8, "k": 2, "voted": 4, "span": 4}
    return reattention.Settings(**(numbers | changes))


def logits_of(weights: reattention.Weights, settings: reattention.Settings) -> np.ndarray:
    """After the question over the whole document."""
    reading = reattention.read(weights, IDS, settings)
    return reattention.feed(weights, reading, QUESTION, settings)[0]


@pytest.fixture(scope="module")
def llama(make_model) -> PreTrainedModel:
    return make_model("llama-default", torch.float64)


@pytest.fixture(scope="module")
def weights(llama) -> reattention.Weights:
    return weights_of(llama)


@pytest.fixture(scope="module")
def reading(weights) -> reattention.Reading:
    return reattention.read(weights, IDS, settings_of())


# ---- the limit


@pytest.mark.parametrize("family", FAMILIES)
def test_what_fits_into_first_and_local_gets_the_models_own_logits(make_model, family) -> None:
    model = make_model(family, torch.float64)
    weights, settings = weights_of(model), settings_of(first=4, local=46)
    # A window's positions start again with its chunk, and float32 tables are not quite relative.
    tolerance = 1e-5 if weights.window else 1e-9
    reading = reattention.read(weights, IDS[:39], settings)
    ids = IDS[:39]
    for part in (QUESTION, [7], [11]):  # 50 tokens at last
        logits, reading = reattention.feed(weights, reading, part, settings)
        ids = ids + part
        np.testing.assert_allclose(logits, own_logits(model, ids)[-1], rtol=0, atol=tolerance)
    assert reading.tokens == settings.first + settings.local
    assert reading.selections == {}


@pytest.mark.parametrize(("voted", "equal_above"), [(0, 0), (1, 1), (2, 2)])
def test_above_first_and_local_logits_differ_once_a_token_is_left_out(
    llama, weights, voted, equal_above
) -> None:
    """Spans of one token: the window holds `voted` tokens more than first and local do."""
    settings = settings_of(voted=voted, span=1)
    limit = settings.first + settings.local
    reading = reattention.read(weights, IDS[:limit], settings)
    for length in range(limit + 1, limit + 5):
        logits, reading = reattention.feed(weights, reading, IDS[length - 1 : length], settings)
        error = np.abs(logits - own_logits(llama, IDS[:length])[-1]).max()
        assert error < 1e-9 if length <= limit + equal_above else error > 1e-3


@pytest.mark.parametrize("wide", [{"k": 200, "voted": 200, "span": 1}, {"voted": 1, "span": 300}])
@pytest.mark.parametrize("family", ["llama-default", "qwen3"])
def test_a_middle_that_is_all_selected_gets_the_models_own_logits(make_model, family, wide) -> None:
    """The window is then everything in order, whichever way it was selected."""
    model = make_model(family, torch.float64)
    weights, settings = weights_of(model), settings_of(**wide)
    reading = reattention.read(weights, IDS, settings)
    logits, asked = reattention.feed(weights, reading, QUESTION, settings)
    np.testing.assert_allclose(logits, own_logits(model, IDS + QUESTION)[-1], rtol=0, atol=1e-9)
    middle = list(range(settings.first, len(IDS + QUESTION) - settings.local))
    assert asked.selections[asked.chunks - 1, 3].tokens == middle
    assert np.abs(logits - logits_of(weights, settings_of())).max() > 1e-3


# ---- selection


@pytest.mark.parametrize("family", ["llama-default", "qwen2", "qwen3"])
def test_layer_0_selects_what_transformers_queries_and_keys_say(make_model, family) -> None:
    """Layer 0's states depend on the token alone."""
    model, settings = make_model(family, torch.float64), settings_of()
    found = reattention.read(weights_of(model), IDS, settings).selections
    keys = states_of(model, IDS, "k").repeat(GROUP, axis=0)  # (H, N, D)
    products = np.einsum("htd,hsd->hts", states_of(model, IDS, "q"), keys).round(9)  # ties stay
    limit = settings.first + settings.local
    starts = range(limit, len(IDS), settings.chunk)
    assert [chunk for chunk, layer in found if layer == 0] == list(range(1, len(starts) + 1))
    for chunk, start in enumerate(starts, 1):
        end = min(start + settings.chunk, len(IDS))
        rows = products[:, start:end, settings.first : end - settings.local]  # (H, T, middle)
        rows = rows.reshape(-1, rows.shape[-1])
        picks = np.argsort(-rows, axis=1, kind="stable")[:, : settings.k]
        votes = np.bincount(picks.flatten(), minlength=rows.shape[1])
        best = np.full(rows.shape[1], -np.inf)
        np.maximum.at(best, picks, np.take_along_axis(rows, picks, axis=1))
        order = np.lexsort((-best, -votes))[: settings.voted]  # the earlier last of all: stable
        spread = order[votes[order] > 0][:, None] + np.arange(-2, 2)
        tokens = np.unique(spread.clip(0, rows.shape[1] - 1)) + settings.first
        assert found[chunk, 0].tokens == tokens.tolist()
        assert found[chunk, 0].votes == {
            i + settings.first: n for i, n in enumerate(votes.tolist()) if n
        }


def test_one_layer_gets_the_models_own_logits_on_the_ids_of_its_window(make_model) -> None:
    """Its keys depend on the token alone, so that the window is a short input of its own."""
    model = make_model("llama-default", torch.float64, num_hidden_layers=1)
    weights, settings = weights_of(model), settings_of()
    reading = reattention.read(weights, IDS, settings)
    question = QUESTION[: settings.chunk]
    logits, asked = reattention.feed(weights, reading, question, settings)
    ids = IDS + question
    chosen = asked.selections[reading.chunks, 0].tokens
    seen = [*range(3), *chosen, *range(len(ids) - 20, len(ids))]
    expected = own_logits(model, [ids[j] for j in seen])[-1]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-9)
    assert 0 < len(chosen) < len(IDS) / 2


def test_layers_and_chunks_select_sets_of_their_own_and_leave_most_out(reading) -> None:
    chunks = sorted({chunk for chunk, _ in reading.selections})
    assert chunks == list(range(1, reading.chunks))
    last = [reading.selections[chunks[-1], layer] for layer in range(4)]
    assert len({tuple(selection.tokens) for selection in last}) == 4
    assert all(len(selection.tokens) < len(IDS) / 2 for selection in last)
    before = reading.selections[chunks[-2], 3]
    assert before.tokens != last[3].tokens


def test_every_query_head_casts_k_votes_or_as_many_as_there_are_keys(weights) -> None:
    settings = settings_of(k=12)
    found = reattention.read(weights, IDS[:40], settings).selections
    sizes = {1: (8, 8), 2: (8, 16), 3: (1, 17)}  # chunk: (its tokens, the middle's)
    assert {chunk for chunk, _ in found} == set(sizes)
    for (chunk, _), selection in found.items():
        tokens, middle = sizes[chunk]
        assert sum(selection.votes.values()) == HEADS * tokens * min(12, middle)


def test_all_keys_and_values_are_kept_without_position(llama, reading) -> None:
    assert reading.tokens == len(IDS)
    np.testing.assert_allclose(reading.keys[0], states_of(llama, IDS, "k"), rtol=0, atol=1e-9)
    shape = (4, HEADS // GROUP, len(IDS), 8)
    assert np.array(reading.keys).shape == np.array(reading.values).shape == shape


def test_top_keys_by_hand() -> None:
    assert reattention.top_keys(np.array([1.0, 3.0, 2.0, 3.0, -4.0])) == [1, 3, 2, 0, 4]


def test_votes_by_hand() -> None:
    """7 has most; 2, 5 and 9 tie, and 5 has the best score; 2 and 9 tie in that too."""
    votes = {9: 2, 2: 2, 7: 3, 5: 2, 1: 1}
    best = {9: 0.5, 2: 0.5, 7: 0.1, 5: 0.6, 1: 9.0}
    assert reattention.by_votes(votes, best) == [7, 5, 2, 9, 1]


def test_spans_by_hand() -> None:
    middle = range(10, 100)
    assert reattention.grown([50], middle, 32) == list(range(34, 66))
    assert reattention.grown([12, 99], middle, 4) == [10, 11, 12, 13, 97, 98, 99]
    assert reattention.grown([31, 30], middle, 4) == [28, 29, 30, 31, 32]
    assert reattention.grown([30, 20], middle, 1) == [20, 30]


def test_selection_by_hand(weights) -> None:
    """Two keys each from heads 0, 1 (key/value head 0) and 2, 3 (1); no vote, no place."""
    first, second = np.eye(8)[0], np.eye(8)[1]
    keys = [[first * n for n in (9, 1, 4, 3, 3, 0, 9)], [second * n for n in (9, 1, 1, 5, 0, 6, 9)]]
    queries = [[first, first * 2, second, -second]]
    settings = settings_of(k=2, voted=5, span=1)
    selection = reattention.select(weights, queries, keys, range(1, 6), settings)
    assert selection.votes == {2: 2, 3: 3, 5: 1, 4: 1, 1: 1}
    assert selection.winners == [3, 2, 5, 4, 1]
    assert selection.gap == 0  # keys 3 and 4 of head 0
    fewer = reattention.select(weights, queries, keys, range(1, 6), settings_of(k=1, voted=5))
    assert fewer.votes == {2: 2, 5: 1, 4: 1}
    assert fewer.gap == 1
    cut = reattention.select(weights, queries, keys, range(1, 6), settings_of(k=1, voted=2, span=1))
    assert cut.tokens == [2, 5]


# ---- a question and its answer


def test_a_question_leaves_the_reading_as_it_was(weights, reading) -> None:
    before = reattention.copied(reading)
    first, asked = reattention.feed(weights, reading, QUESTION, settings_of())
    again, _ = reattention.feed(weights, reading, QUESTION, settings_of())
    assert vars(before) == vars(reading)
    np.testing.assert_array_equal(first, again)
    assert asked.tokens == len(IDS) + len(QUESTION)


def test_a_question_is_read_in_chunks(weights, reading) -> None:
    settings = settings_of()
    whole, asked = reattention.feed(weights, reading, QUESTION, settings)
    _, half = reattention.feed(weights, reading, QUESTION[:8], settings)
    rest, twice = reattention.feed(weights, half, QUESTION[8:], settings)
    np.testing.assert_array_equal(whole, rest)
    assert asked.selections == twice.selections
    assert asked.chunks == reading.chunks + 2


def test_passages_get_the_votes_of_the_question_and_of_the_first_steps(weights, reading) -> None:
    settings = settings_of()
    _, asked = reattention.feed(weights, reading, QUESTION, settings)
    answered = asked
    for token in IDS[:34]:  # so many that the answer's middle holds tokens of the question
        _, answered = reattention.feed(weights, answered, [token], settings)
    chunks = range(reading.chunks, asked.chunks + 32)
    found = [answered.selections[chunk, layer] for chunk in chunks for layer in range(4)]
    total = reattention.passage_votes(reading, asked, answered)
    for j in range(len(IDS)):
        voted = sum(selection.votes.get(j, 0) / selection.asking for selection in found)
        assert total.get(j, 0) == pytest.approx(voted)
    assert max(total) < len(IDS) <= max(max(selection.votes) for selection in found)
    assert total != reattention.passage_votes(reading, asked, answered, steps=34)
    assert reattention.passage_votes(reading, asked, asked, 5) == (
        reattention.passage_votes(reading, asked, answered, 0)
    )


def test_a_chunk_longer_than_the_local_part_is_refused() -> None:
    with pytest.raises(ValueError, match="local part of 20"):
        settings_of(chunk=21)


# ---- layers with a sliding window


def test_a_sliding_window_selects_nothing_and_sees_what_the_model_sees(make_model) -> None:
    model = make_model("mistral-window", torch.float64)
    settings = settings_of()
    reading = reattention.read(weights_of(model), IDS, settings)
    logits, asked = reattention.feed(weights_of(model), reading, QUESTION, settings)
    np.testing.assert_allclose(logits, own_logits(model, IDS + QUESTION)[-1], rtol=0, atol=1e-5)
    assert asked.selections == {}


# ---- mutations must show


def interleaved(w: reattention.Weights, h: int) -> int:
    """The published decoding's GQA map."""
    return h % w.key_heads


def later_keys(scores: np.ndarray) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-scores[i], -i))


def votes_alone(votes: dict[int, int], best: dict[int, float]) -> list[int]:
    return sorted(votes, key=lambda j: (-votes[j], j))


def later_votes(votes: dict[int, int], best: dict[int, float]) -> list[int]:
    return sorted(votes, key=lambda j: (-votes[j], -best[j], -j))


def shifted_spans(winners: list[int], middle: range, span: int) -> list[int]:
    """-15..+16 for a span of 32."""
    return right_grown([j + 1 for j in winners], middle, span)


right_grown = reattention.grown


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        ("key_head", interleaved),
        ("top_keys", later_keys),
        ("by_votes", votes_alone),
        ("by_votes", later_votes),
        ("grown", shifted_spans),
    ],
    ids=["another GQA map", "top k: the later", "no best score", "votes: the later", "spans"],
)
def test_mutations_select_other_tokens(weights, reading, monkeypatch, name, mutation) -> None:
    right = logits_of(weights, settings_of())
    monkeypatch.setattr(reattention, name, mutation)
    mutated = reattention.read(weights, IDS, settings_of())
    chosen = {place: selection.tokens for place, selection in reading.selections.items()}
    assert chosen != {place: selection.tokens for place, selection in mutated.selections.items()}
    assert np.abs(logits_of(weights, settings_of()) - right).max() > 1e-3


def test_original_positions_give_other_logits(weights, monkeypatch) -> None:
    """Window and chunk stand where they stood in the input; seen if something is left out."""
    everything = settings_of(voted=1, span=300)
    right = [logits_of(weights, settings) for settings in (settings_of(), everything)]
    table, right_window = llama_transcription.rotary_table, reattention.window
    places: list[int] = []

    def window(*args: Any) -> list[int]:
        places[:] = right_window(*args)
        return list(places)

    def rotary_table(w: reattention.Weights, length: int) -> tuple[np.ndarray, np.ndarray]:
        assert length == len(places)
        cos, sin = table(w, max(places) + 1)
        return cos[places], sin[places]

    monkeypatch.setattr(reattention, "window", window)
    monkeypatch.setattr(llama_transcription, "rotary_table", rotary_table)
    mutated = [logits_of(weights, settings) for settings in (settings_of(), everything)]
    assert np.abs(mutated[0] - right[0]).max() > 1e-3
    np.testing.assert_array_equal(mutated[1], right[1])
