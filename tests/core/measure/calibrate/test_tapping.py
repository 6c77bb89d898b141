"""States of all layers and heads, read by chunks over an evicted cache."""

import pytest
import torch

from longctx.core.measure.calibrate import tapping
from longctx.core.measure.calibrate.tapping import STATES, Unit
from longctx.core.methods.h2o import Options
from longctx.core.model.adapter import Decoder

SMALL = Options(budget=16, chunk=8, question=32, queries=4)


class Words:
    """A prompt of fixed tokens: 3 before the document; of 6 of the question, 2 are the user's."""

    def prefix(self) -> torch.Tensor:
        return torch.tensor([5, 6, 7])

    def question(self, words: str) -> tuple[torch.Tensor, torch.Tensor]:
        scored = torch.tensor([False, False, True, True, False, False])
        return torch.tensor([8, 9, 10, 11, 12, 13]), scored


def document(tokens: int) -> torch.Tensor:
    return torch.randint(14, 61, (tokens,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(params=["llama-default", "qwen3", "olmo2", "gpt_neox"])
def decoder(request, make_model) -> Decoder:
    return Decoder(make_model(request.param))


class Full:
    """Full attention that keeps position-free q, k and v of every layer."""

    def __init__(self) -> None:
        self.states: dict[int, tuple[torch.Tensor, ...]] = {}

    def attend(self, layer, q, k, v):
        self.states[layer.index] = q, k, v
        T = q.shape[1]
        q, k = (layer.rotate(x, slice(0, T), T) for x in (q, k))
        return layer.attention(q, k, v)


def test_states_are_those_of_full_attention_while_everything_is_kept(decoder):
    ids, words = document(10), Words()
    everything = torch.cat([words.prefix(), ids, words.question("")[0]])
    full = Full()
    decoder.read(everything, full)
    with decoder.as_it_is() as model, torch.inference_mode():
        hidden = model(everything[None], output_hidden_states=True).hidden_states
    found = list(tapping.read(decoder, SMALL, words, ids, "?"))
    assert [states.index for states in found] == [0, 1, 2, 3]
    for states in found:
        expected = dict(zip(STATES, full.states[states.index], strict=False))
        if states.index < 3:  # the last one of transformers has gone through the last norm
            expected["hidden"] = hidden[states.index + 1]
        for kind, every in expected.items():
            for unit, own in ((states.document, slice(3, 13)), (states.question, slice(15, 17))):
                close(unit[kind], Unit.of(every[:, own]))


def close(found: Unit, expected: Unit) -> None:
    torch.testing.assert_close(found.vectors, expected.vectors, atol=2e-3, rtol=0)
    torch.testing.assert_close(found.lengths, expected.lengths, atol=1e-3, rtol=1e-3)


def test_a_longer_document_is_read_over_an_evicted_cache(make_model):
    decoder, words, ids = Decoder(make_model("llama-default")), Words(), document(60)
    full = Full()
    decoder.read(torch.cat([words.prefix(), ids, words.question("")[0]]), full)
    last = list(tapping.read(decoder, SMALL, words, ids, "?"))[-1]
    assert last.document["q"].vectors.shape == (4, 60, 8)
    assert last.document["hidden"].vectors.shape == (1, 60, 32)
    assert last.question["v"].lengths.shape == (2, 2)
    exact = Unit.of(full.states[3][0][:, 3:63])
    differs = (last.document["q"].vectors - exact.vectors).abs().amax(dim=(0, 2)) > 2e-2
    assert not differs[:5].any()  # of the first chunk
    assert differs[30:].any()


def test_unit_vectors_and_lengths_make_up_the_states():
    states = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)) * 1e5
    states[1, 3] = 0
    unit = Unit.of(states)
    assert unit.vectors.dtype == torch.float16
    made = unit.vectors.float() * unit.lengths[..., None]
    torch.testing.assert_close(made, states, atol=200, rtol=1e-3)


def test_sizes_are_256_heavy_hitters_or_what_the_window_has_room_for():
    assert tapping.options(32768).budget == 512
    small = tapping.options(1024)
    assert small.budget + small.chunk + small.question <= 1024


@pytest.mark.parametrize("name", ["llama-default", "gpt_oss"])
def test_no_hook_is_left_behind(make_model, name):
    decoder = Decoder(make_model(name))
    list(tapping.read(decoder, SMALL, Words(), document(12), "?"))
    assert not any(layer._forward_hooks for layer in decoder._base.layers)
