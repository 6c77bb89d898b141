"""The search for Ltri-LLM's thresholds: constructed maps, and numbers worked out by hand."""

import json
from dataclasses import replace

import pytest
import torch

from longctx.core.common.errors import UsageError
from longctx.core.engine.setup import prepare
from longctx.core.kv import spans
from longctx.core.measure.calibrate import span_search
from longctx.core.measure.calibrate.maps import BlockPlace, LayerMaps, MapSample, MapTap, haystacks
from longctx.core.measure.calibrate.span_search import REFERENCE, Shape
from longctx.core.model.adapter import Decoder, Layer
from longctx.core.model.rope import NoRope

USUAL = Shape(first=128, block=128, spans=4, vectors=12, ratio="row")
SMALL, SIXTEEN = replace(USUAL, first=16), replace(USUAL, block=16)


def mask(tokens: int, *stretches: tuple[int, int]) -> torch.Tensor:
    """(B, N) bool: in each block the tokens first..last."""
    token = torch.arange(tokens)
    return torch.stack([(token >= first) & (token <= last) for first, last in stretches])


def triangles(tokens: int, background: float, *stretches: tuple[int, int]) -> torch.Tensor:
    """(1, N, N): the background below the diagonal, and 0.5 within some spans."""
    block = torch.full((tokens, tokens), background)
    for first, last in stretches:
        block[first : last + 1, first : last + 1] = 0.5
    return block.tril()[None]


def with_thresholds(summed: torch.Tensor, *thetas: float) -> LayerMaps:
    return LayerMaps(summed, torch.tensor([thetas] * len(summed)), heads=1)


# --- F1 -----------------------------------------------------------------------------------------


def f1_of(there: list[list[bool]]) -> list[float]:
    """Spans 0..1, 2..5 and 3..4 of two blocks of eight tokens, with evidence 2..4 and 6..7."""
    x, y = torch.tensor([[0, 2, 3]] * 2), torch.tensor([[1, 5, 4]] * 2)
    evidence = mask(8, (2, 4), (6, 7))
    return span_search.span_f1(x, y, torch.tensor(there), evidence).tolist()


def test_f1_is_that_of_the_best_span_by_tokens():
    # 2..5: precision 3/4, recall 3/3; 3..4: precision 2/2, recall 2/3.
    assert f1_of([[True] * 3] * 2) == pytest.approx([6 / 7, 0])
    assert f1_of([[True, False, True]] * 2) == pytest.approx([4 / 5, 0])


def test_f1_does_not_count_spans_that_are_not_there():
    assert f1_of([[True, False, False]] * 2) == [0, 0]


def test_f1_and_vectors_need_no_float64_of_the_device(without_float64):
    x, y = (torch.tensor([[0, 2]], device=without_float64) for _ in range(2))
    there = torch.ones(1, 2, dtype=torch.bool, device=without_float64)
    evidence = torch.ones(1, 8, dtype=torch.bool, device=without_float64)
    assert span_search.span_f1(x, y, there, evidence).dtype == torch.float64
    summed = torch.ones(1, 8, 8, device=without_float64)
    assert len(span_search.vector_table(summed, x, y, there, "row")) == 20


# --- fitting a layer ----------------------------------------------------------------------------


def test_the_threshold_that_parts_a_needle_from_its_block_is_found():
    maps = with_thresholds(triangles(16, 0.1, (5, 9)), 0.05, 0.3, 0.6)
    candidates = [REFERENCE, (0.95, 0.1), (0.99, 0.1)]
    found = span_search.fit(maps, mask(16, (5, 9)), candidates, SIXTEEN)
    assert (found.theta, found.phi, found.f1) == (0.95, 0.1, 1.0)
    # With a threshold under all entries the best span is the whole block: 5 of 16 tokens.
    assert found.reference_f1 == pytest.approx(2 * 5 / (16 + 5))


def test_the_phi_that_lets_a_needle_overlap_with_a_better_span_is_found():
    # 6..13 overlaps with 0..9 by 16 of 148 entries, 0.108.
    maps = with_thresholds(triangles(16, 0.0, (0, 9), (6, 13)), 0.3, 0.3, 0.3)
    candidates = [(0.9, 0.05), (0.9, 0.1), (0.9, 0.12)]
    found = span_search.fit(maps, mask(16, (6, 13)), candidates, SIXTEEN)
    assert (found.phi, found.f1) == (0.12, 1.0)
    assert found.reference_f1 < 1


def test_of_equal_candidates_the_reference_is_taken():
    maps = with_thresholds(triangles(16, 0.1, (5, 9)), 0.3, 0.3, 0.3)
    candidates = [REFERENCE, (0.5, 0.1), (0.4, 0.1)]
    found = span_search.fit(maps, mask(16, (5, 9)), candidates, SIXTEEN)
    assert (found.theta, found.phi) == REFERENCE


def test_a_mean_of_needles_has_a_standard_error():
    # One needle is found, the other is not.
    summed = triangles(16, 0.1, (5, 9)).expand(2, -1, -1)
    evidence = mask(16, (5, 9), (14, 15))
    found = span_search.fit(with_thresholds(summed, 0.3), evidence, [REFERENCE], SIXTEEN)
    assert (found.f1, found.f1_error) == pytest.approx((0.5, 0.5))


def random_maps(candidates: list[tuple[float, float]]) -> tuple[torch.Tensor, LayerMaps]:
    torch.manual_seed(5)
    logits = 3 * torch.randn(6, 2, 24, 24)
    own = logits.masked_fill(torch.ones(24, 24).triu(1).bool(), -torch.inf).softmax(-1)
    thetas = spans.quantiles(own, [theta for theta, _ in candidates])
    return own, LayerMaps(own.sum(1), thetas, heads=2)


@pytest.mark.parametrize("seed", range(4))
def test_the_result_is_the_best_of_all_and_never_worse_than_the_reference(seed):
    candidates = span_search.draw(12, seed)
    own, maps = random_maps(candidates)
    evidence = mask(24, *((first, first + 5) for first in range(0, 18, 3)))
    found = span_search.fit(maps, evidence, candidates, replace(USUAL, block=24))
    means = [
        span_search.span_f1(*spans.find(own, theta, phi, 4), evidence).mean().item()
        for theta, phi in candidates
    ]
    assert found.reference_f1 == means[0] <= found.f1 == max(means)
    assert (found.theta, found.phi) == candidates[means.index(max(means))]


def test_candidates_are_the_reference_and_uniform_draws_of_the_seed():
    drawn = span_search.draw(2000, seed=1)
    assert drawn[0] == REFERENCE
    assert drawn == span_search.draw(2000, seed=1) != span_search.draw(2000, seed=2)
    for values, (low, high) in zip(
        torch.tensor(drawn[1:]).T, (span_search.THETA, span_search.PHI), strict=True
    ):
        assert low <= values.min() < low + 0.01
        assert high - 0.01 < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.02)


def test_many_quantiles_of_one_sort_are_those_of_each():
    own = random_maps([REFERENCE])[0]
    shares = [0.0001, 0.3, 0.5, 0.9, 0.95, 1.0]
    expected = torch.stack([spans.quantile(own[:1], share)[0] for share in shares])
    assert torch.equal(spans.quantiles(own[:1], shares)[0], expected)


# --- lambda -------------------------------------------------------------------------------------


def test_vectors_and_the_least_lambda_by_hand():
    # 8..15 has 36 within, and 36 in the 64 entries before it: r = 1/2. 0..7 has no neighbours.
    summed = torch.ones(1, 16, 16)
    summed[:, 8:, :8] = 36 / 64
    x, y, there = torch.tensor([[0, 8, 0]]), torch.tensor([[7, 15, 0]]), torch.ones(1, 3).bool()
    there[0, 2] = False
    table = span_search.vector_table(summed, x, y, there, "row")
    # 8 and round(8 exp(-lambda / 2)): 4.85, 2.94, 1.79, 1.08, then at least one.
    assert table == (13, 11, 10, 9) + (9,) * 16
    assert [span_search.least_lambda(table, n) for n in (13, 12, 11, 10.5, 9)] == [1, 2, 2, 3, 4]


def test_a_layer_that_no_lambda_brings_down_gets_the_last():
    assert span_search.least_lambda((90.0,) * 20, 12) == 20


def test_vectors_are_a_mean_over_blocks():
    summed = torch.ones(2, 16, 16)
    x, y = torch.zeros(2, 1, dtype=torch.int64), torch.tensor([[15], [3]])
    there = torch.ones(2, 1, dtype=torch.bool)
    assert span_search.vector_table(summed, x, y, there, "row") == ((16 + 4) / 2,) * 20


# --- samples and maps ---------------------------------------------------------------------------


@pytest.fixture
def engine(setup_random):
    """The random model, as if it had been trained on windows of 1,200 tokens."""
    return replace(prepare(replace(setup_random, method="full")), window=1200)


def test_every_needle_lies_within_a_block_of_its_own(engine):
    samples = [*haystacks(engine, needles=6, seed=0, first=16, block=128)]
    tokenizer = engine.files.tokenizer
    assert [len(sample.places) for sample in samples] == [4, 2]
    for sample in samples:
        assert len(sample.ids) <= engine.window
        assert torch.equal(sample.ids[:1], engine.prompt.prefix())
        blocks = [place.block for place in sample.places]
        assert all((start - 16) % 128 == 0 for start in blocks)
        assert len({*blocks}) == len(blocks)
        for place in sample.places:
            assert place.block <= place.begin < place.end <= place.block + 128
            needle = tokenizer.decode(sample.ids[place.begin : place.end])
            assert needle.startswith("The ")
            assert needle.rstrip("\n").endswith(".")
            assert tokenizer.decode(sample.ids[: place.begin]).endswith("\n")


def test_samples_differ_from_seed_to_seed(engine):
    def first(seed: int) -> list[int]:
        return next(haystacks(engine, 2, seed, first=16, block=128)).ids.tolist()

    assert first(0) == first(0) != first(1)


def test_a_window_without_room_is_refused(engine):
    short = replace(engine, window=300)
    with pytest.raises(UsageError, match="window of 300 tokens"):
        next(haystacks(short, 2, 0, first=16, block=128))


def test_a_block_shorter_than_every_needle_is_refused(engine):
    with pytest.raises(UsageError, match="no needle fits into a block of 8"):
        next(haystacks(engine, 2, 0, first=16, block=8))


def test_evidence_is_within_the_block():
    samples = [
        MapSample(torch.empty(0), (BlockPlace(4, 5, 7), BlockPlace(20, 20, 24))),
        MapSample(torch.empty(0), (BlockPlace(8, 10, 11),)),
    ]
    expected = mask(4, (1, 2), (0, 3), (2, 2))
    assert torch.equal(span_search.evidence_of(samples, block=4), expected)


def tapped(layer: Layer) -> tuple[MapTap, tuple[torch.Tensor, ...]]:
    torch.manual_seed(3)
    q, k, v = (torch.randn(heads, 16, 6, dtype=torch.float64) for heads in (4, 2, 2))
    sample = MapSample(torch.zeros(16), (BlockPlace(2, 3, 5), BlockPlace(10, 10, 12)))
    tap = MapTap(sample, first=2, block=4, shares=[0.5, 0.9])
    tap.attend(layer, q, k, v)
    return tap, (q, k, v)


def test_a_map_is_the_blocks_own_part_of_attention_to_local_tokens():
    layer = Layer(0, 4, 2, 6, scale=0.4, window=None, rope=NoRope())
    tap, (q, k, _) = tapped(layer)
    maps = tap.maps[0]
    for number, start in enumerate((2, 10)):
        own = torch.zeros(4, 4, 4, dtype=torch.float64)
        for head in range(4):
            for row in range(4):
                seen = k[head // 2, 2 : start + row + 1]  # the first two tokens are not local
                own[head, row, : row + 1] = (0.4 * seen @ q[head, start + row]).softmax(0)[
                    start - 2 :
                ]
        assert torch.allclose(maps.summed[number], own.sum(0))
        assert torch.allclose(maps.thetas[number], spans.quantiles(own[None], [0.5, 0.9])[0])
    assert maps.heads == 4


def test_a_layer_with_a_sliding_window_has_no_maps():
    layer = Layer(0, 4, 2, 6, scale=0.4, window=8, rope=NoRope())
    assert tapped(layer)[0].maps == {}


def test_a_pass_is_the_models_own_attention(engine):
    sample = next(haystacks(engine, 1, 0, first=16, block=128))
    hidden = engine.decoder.read(sample.ids, MapTap(sample, 16, 128, [0.9]))
    with engine.decoder.as_it_is() as model, torch.inference_mode():
        expected = model.base_model(sample.ids[None]).last_hidden_state[0]
    assert torch.allclose(hidden, expected, atol=1e-4)


# --- all of it ----------------------------------------------------------------------------------


def test_a_search_is_decided_by_its_seed_and_can_be_written_down(engine):
    told = []
    found = span_search.search(engine, SMALL, 5, 8, 3, lambda *done: told.append(done))
    assert found == span_search.search(engine, SMALL, 5, 8, 3)
    assert found != span_search.search(engine, SMALL, 5, 8, 4)
    assert told == [(done, 5) for done in range(6)]  # two haystacks and three layers
    assert all(f1 >= least for f1, least in zip(found["f1"], found["reference_f1"], strict=True))
    pairs = span_search.draw(8, 3)
    assert all(pair in pairs for pair in zip(found["theta"], found["phi"], strict=True))
    assert [span_search.least_lambda(table, 12) for table in found["vectors"]] == [*found["lam"]]
    written = json.loads(json.dumps(found))
    assert {len(values) for values in written.values()} == {3}


def test_layers_with_a_sliding_window_keep_the_reference_values(engine, make_model):
    words = engine.files.config.vocab_size
    decoder = Decoder(make_model("qwen3-windows", vocab_size=words))
    found = span_search.search(replace(engine, _decoder=decoder), SMALL, 2, 3, 0)
    assert [f1 is None for f1 in found["f1"]] == [False, True, True, False]
    assert [*zip(found["theta"], found["phi"], strict=True)][1:3] == [REFERENCE] * 2
    assert found["vectors"][1] == ()
