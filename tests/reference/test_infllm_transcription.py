"""InfLLM's transcription against transformers, against cases by hand, and mutated."""

import infllm_transcription as infllm
import llama_transcription
import numpy as np
import pytest
import torch
from float64_models import own_logits, weights_of
from transformers import PreTrainedModel

IDS = np.random.default_rng(3).permutation(61)[:60].tolist()
QUESTION = np.random.default_rng(4).integers(0, 61, 7).tolist()


def settings_of(**changes: int) -> infllm.Settings:
    """Small settings that leave most blocks out."""
    numbers = {"first": 3, "local": 8, "block": 4, "chunk": 8, "retrieved": 2, "vectors": 2}
    return infllm.Settings(**(numbers | changes))


def logits_of(weights: infllm.Weights, settings: infllm.Settings) -> np.ndarray:
    """After the question over the whole document."""
    reading = infllm.read(weights, IDS, settings)
    return infllm.feed(weights, reading, QUESTION, settings)[0]


@pytest.fixture(scope="module")
def llama(make_model) -> PreTrainedModel:
    return make_model("llama-default", torch.float64)


@pytest.fixture(scope="module")
def weights(llama) -> infllm.Weights:
    return weights_of(llama)


@pytest.fixture(scope="module")
def reading(weights) -> infllm.Reading:
    return infllm.read(weights, IDS, settings_of())


# ---- the limit


@pytest.mark.parametrize("family", ["llama-default", "llama-one-kv-head", "qwen2", "qwen3"])
def test_only_what_fits_into_first_and_local_gets_the_models_own_logits(make_model, family) -> None:
    model, settings = make_model(family, torch.float64), settings_of(local=16)
    weights, limit = weights_of(model), settings.first + settings.local
    reading = infllm.read(weights, IDS[: limit - 2], settings)
    for length in range(limit - 1, limit + 2):
        logits, reading = infllm.feed(weights, reading, IDS[length - 1 : length], settings)
        error = np.abs(logits - own_logits(model, IDS[:length])[-1]).max()
        # A chunk's positions start anew, and float32 tables are not quite relative.
        assert error < 1e-5 if length <= limit else error > 1e-3
    assert reading.retrievals == {}  # one token more, and no block is whole


def test_without_positions_all_blocks_are_the_models_own_attention(weights, monkeypatch) -> None:
    """Where nothing turns, distances do not count: what is left is which tokens are seen."""

    def still(w: infllm.Weights, length: int) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((length, w.head_dim)), np.zeros((length, w.head_dim))

    monkeypatch.setattr(llama_transcription, "rotary_table", still)
    monkeypatch.setattr(infllm, "rotary_table", still)
    truth = llama_transcription.full_logits(weights, IDS + QUESTION)[-1]
    everything = logits_of(weights, settings_of(retrieved=100))
    np.testing.assert_allclose(everything, truth, rtol=0, atol=1e-9)
    assert np.abs(logits_of(weights, settings_of()) - truth).max() > 1e-3


# ---- blocks


def test_the_local_window_begins_where_a_block_does() -> None:
    settings = settings_of()
    assert [settings.left(n) for n in (1, 11, 14, 15, 18, 19)] == [0, 0, 0, 1, 1, 2]
    assert settings.tokens(1) == range(7, 11)


def test_layers_and_chunks_retrieve_blocks_of_their_own_and_leave_most_out(reading) -> None:
    last = [reading.retrievals[reading.chunks - 1, layer] for layer in range(4)]
    blocks = settings_of().left(len(IDS))
    assert all(len(r.blocks) == 2 < blocks / 2 and len(r.scores) == blocks for r in last)
    assert len({tuple(r.blocks) for r in last}) > 1
    assert reading.retrievals[reading.chunks - 2, 3].blocks != last[3].blocks


def test_a_token_receives_attention_from_all_that_it_is_local_to(reading) -> None:
    """A query gives 1 to what it sees of the local window, and tokens before that give nothing."""
    received = np.array(reading.received)  # (layers, heads, tokens)
    assert np.all(received[..., :3] == 0)
    np.testing.assert_allclose(received.sum(-1), len(IDS) - 3, rtol=0, atol=1e-9)
    assert np.all(received[..., 3:] > 0)


def test_a_block_is_the_mean_of_its_most_attended_keys(reading) -> None:
    for layer in range(4):
        for block, of_heads in enumerate(reading.best[layer]):
            for h, tokens in enumerate(of_heads):
                received = reading.received[layer][h]
                inside = settings_of().tokens(block)
                worst = min(received[j] for j in tokens)
                assert all(received[j] <= worst for j in inside if j not in tokens)
                keys = reading.keys[layer][h // 2]
                mean = (keys[tokens[0]] + keys[tokens[1]]) / 2
                np.testing.assert_allclose(reading.vectors[layer][block][h], mean)


def test_order_by_hand() -> None:
    assert infllm.by_attention(range(1, 5), [9.0, 1.0, 3.0, 3.0, 0.5]) == [2, 3, 1, 4]
    assert infllm.by_score([1.0, 3.0, 2.0, 3.0]) == [1, 3, 2, 0]


def test_scores_by_hand(weights) -> None:
    """Three blocks, two queries: the mean of each head times the vector, heads summed."""
    one = np.eye(8)[0]
    vectors = [[one * n for n in block] for block in ((1, 0, 0, 0), (0, 2, 0, 0), (0, 0, 0, -9))]
    empty = [[] for _ in weights.layers]
    reading = infllm.Reading(empty, empty, empty, [vectors, *empty[1:]], empty)
    queries = [[one * n for n in heads] for heads in ((1, 2, 3, 0), (3, 0, 3, 1))]
    chosen = infllm.retrieve(weights, reading, 0, queries, settings_of())
    assert reading.retrievals[0, 0].scores == [2, 2, -4.5]
    assert (chosen, reading.retrievals[0, 0].gap) == ([0, 1], 6.5)


# ---- a question and its answer


def test_a_question_leaves_the_reading_as_it_was(weights, reading) -> None:
    before = infllm.copied(reading)
    first, asked = infllm.feed(weights, reading, QUESTION, settings_of())
    again, _ = infllm.feed(weights, reading, QUESTION, settings_of())
    assert before.retrievals == reading.retrievals
    assert before.received == reading.received
    np.testing.assert_array_equal(first, again)
    votes = infllm.block_votes(reading, asked)
    assert sum(votes.values()) == 2 * 4  # two blocks of each layer


def test_a_sliding_window_retrieves_nothing_and_sees_what_the_model_sees(make_model) -> None:
    model = make_model("mistral-window", torch.float64)
    settings, weights = settings_of(), weights_of(model)
    reading = infllm.read(weights, IDS, settings)
    logits, asked = infllm.feed(weights, reading, QUESTION, settings)
    np.testing.assert_allclose(logits, own_logits(model, IDS + QUESTION)[-1], rtol=0, atol=1e-5)
    assert asked.retrievals == {}


def test_a_chunk_longer_than_the_local_part_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk is in local"):
        settings_of(chunk=12)


# ---- mutations must show


def interleaved(w: infllm.Weights, h: int) -> int:
    return h % w.key_heads


def least_attention(tokens: range, received: list[float]) -> list[int]:
    return sorted(tokens, key=lambda j: (received[j], j))


def later_blocks(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda b: (-round(scores[b]), -b))


def earlier_blocks(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda b: (-round(scores[b]), b))


def other_distance(w, keys, query, far, distance) -> np.ndarray:
    return right_far(w, keys, query, far, distance - 1)


def original_positions(w, keys, query, far, distance) -> np.ndarray:
    """Far tokens at distances of their own, the last one at `distance`."""
    logits = [right_far(w, keys, query, [j], distance + far[-1] - j)[0] for j in far]
    return np.array(logits)


right_far = infllm.far_logits


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        ("key_head", interleaved),
        ("by_attention", least_attention),
        ("far_logits", other_distance),
        ("far_logits", original_positions),
    ],
    ids=["another GQA map", "least attention", "another distance", "original positions"],
)
def test_mutations_give_other_logits(weights, monkeypatch, name, mutation) -> None:
    right = logits_of(weights, settings_of())
    monkeypatch.setattr(infllm, name, mutation)
    assert np.abs(logits_of(weights, settings_of()) - right).max() > 1e-4


def test_ties_the_other_way_retrieve_other_blocks(weights, monkeypatch) -> None:
    """Scores are rounded, so that many of them are equal."""
    chosen = []
    for order in (earlier_blocks, later_blocks):
        monkeypatch.setattr(infllm, "by_score", order)
        reading = infllm.read(weights, IDS, settings_of())
        chosen.append({at: retrieval.blocks for at, retrieval in reading.retrievals.items()})
    assert chosen[0] != chosen[1]
