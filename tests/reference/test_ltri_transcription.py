"""Ltri-LLM's transcription against transformers, against cases by hand, and mutated."""

import math
from typing import Any

import ltri_transcription as ltri
import numpy as np
import pytest
import torch
from float64_models import exact, own_logits, weights_of
from transformers import PreTrainedModel

IDS = np.random.default_rng(3).permutation(400)[:110].tolist()
QUESTION = np.random.default_rng(4).permutation(400)[:11].tolist()
FAMILIES = ["llama-default", "llama-one-kv-head", "qwen2", "qwen3", "mistral-window"]


def settings_of(**changes: Any) -> ltri.Settings:
    """Small settings that leave most blocks out."""
    numbers = {"first": 3, "local": 16, "block": 8, "chunk": 16, "retrieved": 2, "spans": 3}
    numbers |= {"vectors": 5, "theta": (0.8,) * 4, "phi": (0.1,) * 4, "lam": (2.0,) * 4}
    numbers |= {"ratio": "row", "heads": {1: (2, 0.5), 3: (1, 0.3)}, "representative": 2}
    return ltri.Settings(**(numbers | changes))


@pytest.fixture(scope="module")
def llama(make_model) -> PreTrainedModel:
    return make_model("llama-default", torch.float64, vocab_size=400)


@pytest.fixture(scope="module")
def reading(llama) -> ltri.Reading:
    return ltri.read(weights_of(llama), IDS, settings_of())


# ---- the limit


@pytest.mark.parametrize("family", FAMILIES)
def test_what_fits_into_first_and_local_gets_the_models_own_logits(make_model, family) -> None:
    model = make_model(family, torch.float64, vocab_size=400)
    weights, settings = weights_of(model), settings_of(first=4, local=24)
    # A window's positions start again with its chunk, and float32 tables are not quite relative.
    tolerance = 1e-5 if weights.window else 1e-9
    reading, ids = ltri.read(weights, IDS[:15], settings), IDS[:15]
    for part in (QUESTION, [7], [11]):  # 28 tokens at last
        logits, reading = ltri.feed(weights, reading, part, settings)
        ids = ids + part
        np.testing.assert_allclose(logits, own_logits(model, ids)[-1], rtol=0, atol=tolerance)
    assert reading.tokens == settings.first + settings.local
    assert reading.retrievals == {}
    if not weights.window:
        logits, _ = ltri.feed(weights, reading, [5], settings)
        assert np.abs(logits - own_logits(model, [*ids, 5])[-1]).max() > 1e-4


def test_local_attention_is_the_models_own_where_nothing_is_far(make_model) -> None:
    model = make_model("llama-default", torch.float64, vocab_size=400)
    model.set_attn_implementation("eager")
    with torch.no_grad(), exact():
        maps = model(torch.tensor([IDS[:24]]), output_attentions=True).attentions
    found = ltri.read(weights_of(model), IDS[:24], settings_of(first=0, local=24, block=24))
    for layer in range(4):
        block = ltri.map_of(weights_of(model), found.maps[layer], range(24), 0)
        np.testing.assert_allclose(block, maps[layer][0].numpy(), rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            found.received[layer], maps[layer][0].sum(1).T.numpy(), rtol=0, atol=1e-9
        )


# ---- retrieval


def test_layers_and_chunks_retrieve_blocks_of_their_own_and_leave_most_out(reading) -> None:
    chunks = sorted({chunk for chunk, _ in reading.retrievals})
    assert chunks == list(range(1, reading.chunks))
    assert len(reading.blocks[1]) == (len(IDS) - 3 - 16) // 8 == 11
    last = [reading.retrievals[chunks[-1], layer].blocks for layer in range(4)]
    assert all(len(blocks) == 2 for blocks in last)
    assert last[1] == last[2]  # a layer without a head goes by the votes so far
    assert len({tuple(blocks) for blocks in last}) > 1
    assert len({tuple(found.blocks) for found in reading.retrievals.values()}) > 5


def test_an_answer_keeps_the_blocks_of_its_question(llama, reading) -> None:
    weights, settings = weights_of(llama), settings_of()
    _, asked = ltri.feed(weights, reading, QUESTION, settings)
    _, answered = ltri.feed(weights, asked, [5], settings, answering=True)
    assert answered.retrievals.keys() == asked.retrievals.keys()
    assert answered.tokens == asked.tokens + 1
    logits = ltri.feed(weights, asked, [5], settings)[0]
    assert np.abs(logits - ltri.feed(weights, asked, [5], settings, True)[0]).max() > 1e-6


def test_spans_have_vectors_within_them_and_few_enough(reading) -> None:
    blocks = [block for layer in (1, 3) for block in reading.blocks[layer]]
    for block in blocks:
        assert 0 < len(block.spans) <= 3
        assert sum(len(span.tokens) for span in block.spans) <= 5
        for span in block.spans:
            assert all(span.x <= j - block.start <= span.y for j in span.tokens)
    assert len({(span.x, span.y) for block in blocks for span in block.spans}) > 10
    assert not any(block.spans for layer in (0, 2) for block in reading.blocks[layer])


# ---- by hand


def test_a_score_is_that_of_all_rows_and_columns_around_the_triangle() -> None:
    """The second sum of (5), over rows 0..y and columns x..N of what is 0 above the diagonal."""
    generator = np.random.default_rng(1)
    block = [np.tril(generator.random((6, 6))) for _ in range(2)]
    lowered = sum(np.tril(head - 0.3) for head in block)
    for x, y in ((0, 5), (2, 4), (3, 3), (0, 0)):
        expected = lowered[: y + 1, x:].sum()
        assert ltri.score(block, 0.3, x, y) == pytest.approx(expected)


def test_overlaps_by_hand() -> None:
    assert ltri.overlap((0, 3), (0, 3)) == 1
    assert ltri.overlap((0, 3), (2, 5)) == 4 / 28
    assert ltri.overlap((0, 3), (4, 5)) == 0
    assert ltri.overlap((1, 1), (0, 3)) == 1 / 16


def test_two_triangles_are_two_spans() -> None:
    block = np.zeros((8, 8))
    block[:3, :3], block[4:7, 4:7], block[7, 0] = 0.6, 0.5, 0.3
    # 12 of 36 entries are over 0.3, which is the 24th of them.
    assert ltri.spans_of([np.tril(block)], 24 / 36, 0.05, 4) == [(0, 2), (4, 6)]
    assert ltri.spans_of([np.tril(block)], 24 / 36, 0.05, 1) == [(0, 2)]
    assert ltri.spans_of([np.tril(block)], 24 / 36, 0.2, 4)[:2] == [(0, 2), (4, 6)]


def test_counts_by_hand() -> None:
    block = [np.tril(np.arange(16.0).reshape(4, 4))]
    inside, left, below = 5 + 9 + 10, 4 + 8, 13 + 14
    for ratio, around in (("row", left), ("column", below), ("row+column", left + below)):
        expected = max(1, round(2 / math.exp(1.5 * (around / (inside + around)))))
        assert ltri.counts_of(block, [(1, 2)], 1.5, ratio, 9) == [expected]
    assert ltri.counts_of(block, [(0, 3), (0, 1)], 3.0, "row", 9) == [4, 2]
    assert ltri.counts_of(block, [(0, 3), (0, 1)], 3.0, "row", 4) == [
        1 + 3 * 2 // 4,
        1 + 1 * 2 // 4,
    ]
    assert ltri.counts_of(block, [(3, 3)], 50.0, "row", 9) == [1]


def test_vectors_are_of_the_most_attended_tokens() -> None:
    vectors = [np.full(2, float(j)) for j in range(5)]
    spans = ltri.vectors_of([(1, 4), (0, 0)], [2, 1], [9.0, 1, 3, 3, 3], vectors, 20)
    assert [span.tokens for span in spans] == [[22, 23], [20]]
    assert [v.tolist() for v in spans[0].vectors] == [[2, 2], [3, 3]]


def test_similarity_takes_all_pairs_and_a_block_its_best_one() -> None:
    one, other = np.array([1.0, 0]), np.array([0, 1.0])
    asking = [ltri.Span(0, 0, [], [one, one * 2]), ltri.Span(0, 0, [], [other])]
    own = [ltri.Span(0, 0, [], [one * 3, other]), ltri.Span(0, 0, [], [other * 8, other])]
    assert [ltri.similarity(x, y) for x in own for y in asking] == [9, 1, 0, 9]
    assert ltri.block_similarity(ltri.Block(0, own[:1], []), asking) == 9
    assert ltri.block_similarity(ltri.Block(0, [], []), asking) == -np.inf


def test_votes_by_hand() -> None:
    """Block 2 has most votes; 0, 1 and 3 tie, and 3 is the most similar of them."""
    assert ltri.ranked([1.0, 1.0, 0.0, 5.0, 9.0], [0.3, 0.3, 0.8, 0.3, 0.0]) == [2, 3, 0, 1, 4]


def test_a_chunk_is_divided_where_blocks_meet() -> None:
    settings = settings_of()  # blocks begin at 3, 11, 19, ...
    assert ltri.parts(9, 21, settings) == [range(9, 11), range(11, 19), range(19, 21)]
    assert ltri.parts(19, 27, settings) == [range(19, 27)]
    assert ltri.parts(20, 21, settings) == [range(20, 21)]
