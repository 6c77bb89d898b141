"""The transcription of StreamingLLM, H2O and TOVA against cases small enough to work out by hand.

What a token weighs is compared with transformers' own attention maps where nothing is evicted.
"""

import evicting_transcription as transcription
import numpy as np
import pytest
import torch
from evicting_transcription import Entry, Settings
from float64_models import weights_of
from llama_transcription import full_logits

IDS = np.random.default_rng(3).integers(0, 61, 30).tolist()


def head(positions: list[int], weights: list[float]) -> list[Entry]:
    nothing = np.zeros(1)
    return [Entry(p, nothing, nothing, x) for p, x in zip(positions, weights, strict=True)]


def stay(settings: Settings, positions: list[int], weights: list[float]) -> list[int]:
    left = transcription.survivors(head(positions, weights), settings)
    return [positions[i] for i in left]


def test_streaming_by_hand():
    kept, nothing = [0, 1, 6, 7, 8, 9, 10], [0.0] * 7
    settings = Settings("streaming", budget=4, chunk=2, first=2)
    assert stay(settings, kept, nothing) == [0, 1, 9, 10]
    assert stay(Settings("streaming", 7, 2, 2), kept, nothing) == kept


def test_h2o_by_hand():
    """5 and 8 tie for the last place beside the recent half."""
    positions, weights = [0, 3, 5, 8, 9, 10], [0.1, 0.9, 0.4, 0.4, 0.0, 0.0]
    assert stay(Settings("h2o", 4, 2), positions, weights) == [3, 5, 9, 10]
    assert stay(Settings("h2o", 5, 2), positions, weights) == [3, 5, 8, 9, 10]


def test_tova_by_hand():
    """The newest has no privilege."""
    positions, weights = [0, 3, 5, 8, 9], [0.1, 0.2, 0.4, 0.2, 0.05]
    assert stay(Settings("tova", 3, 2), positions, weights) == [3, 5, 8]
    assert stay(Settings("tova", 2, 2), positions, weights) == [3, 5]


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("llama-default", torch.float64)


def maps_of(model) -> list[np.ndarray]:
    """(H, T, T) of each layer, as transformers computes them."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(torch.tensor([IDS]), use_cache=False, output_attentions=True).attentions
    return [layer[0].numpy() for layer in found]


@pytest.mark.parametrize(
    ("method", "queries"), [("h2o", None), ("h2o", 4), ("tova", None), ("streaming", None)]
)
def test_weights_are_those_of_transformers_maps_while_nothing_is_evicted(model, method, queries):
    settings = Settings(method, budget=30, chunk=10, first=2, queries=queries)
    weights = weights_of(model)
    state = transcription.read(weights, IDS[:20], settings)
    transcription.feed(weights, state, IDS[20:], settings)
    rows = [t for t in range(30) if queries is None or t % 10 >= 10 - queries]
    for layer, attention in enumerate(maps_of(model)):
        for g in range(2):
            own = attention[2 * g : 2 * g + 2, rows].sum(axis=(0, 1))
            expected = {"h2o": own, "tova": attention[:, -1].mean(axis=0), "streaming": 0 * own}
            ours = [entry.weight for entry in state.cache[layer][g]]
            assert np.abs(np.array(ours) - expected[method]).max() < 1e-5  # softmax in float32


@pytest.mark.parametrize("method", ["streaming", "h2o", "tova"])
def test_logits_are_full_attentions_inside_the_budget_and_not_above(model, method):
    weights = weights_of(model)
    truth = full_logits(weights, IDS)[-1]
    for budget, differs in ((20, False), (19, True)):
        settings = Settings(method, budget, chunk=10, first=2)
        state = transcription.read(weights, IDS[:20], settings)
        found = transcription.feed(weights, state, IDS[20:], settings)
        assert (np.abs(found - truth).max() > 1e-6) == differs


def test_only_whole_chunks_are_evicted(model):
    settings = Settings("tova", budget=6, chunk=8)
    state = transcription.read(weights_of(model), IDS, settings)
    assert state.evictions == 3
    assert [len(layer[0]) for layer in state.cache] == [6 + 6] * 4
    assert state.positions()[0][0][6:] == list(range(24, 30))
