"""Models whose frequencies depend on the length: they change while an answer grows."""

import numpy as np
import pytest
import torch
from decoded import ORDER, WIDE, greedy, read, step

from longctx.core.decode.policies import choose, dense, load
from longctx.core.kv.prompt import Prompt
from longctx.core.model.adapter import Decoder

POLICIES = {
    "recycled": "recycled:budget=128,stride=3",
    "quest": "quest:budget=96",
    "raas": "raas:budget=128",
    "quest+raas": "quest+raas:budget=64,answer_budget=64",
    "snapkv": "snapkv:budget=96",
}
MODELS = {
    "llama-longrope": ({}, 25),
    "llama-dynamic": ({}, 57),
    "qwen3-windows": ({"rope": "longrope"}, 25),
}
STEPS = 20


def answered(decoder, name, prompt, limit):
    """Tokens and logits of a policy with room for an answer of so many tokens."""
    chosen = choose(POLICIES.get(name, name), {})
    cache = Prompt(prompt + chosen.options.reserve(limit), chosen.options.observed)
    decoder.read(torch.tensor(ORDER[:prompt]), cache)
    policy = load(name).Policy(chosen.options, cache, WIDE)
    return greedy(decoder, policy, ORDER[prompt], STEPS)


def close(found, expected):
    assert found[0] == expected[0]
    scale = max(1, np.abs(expected[1]).max())
    assert np.abs(found[1] - expected[1]).max() < 1e-4 * scale


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_within_the_budget_it_is_dense_whatever_the_room(make_model, name, policy):
    changes, prompt = MODELS[name]
    decoder = Decoder(make_model(name, vocab_size=400, **changes))
    assert not decoder.layers[0].rope.same_basis(prompt, prompt + STEPS)
    expected = answered(decoder, "dense", prompt, STEPS)
    for limit in (STEPS, 80):
        close(answered(decoder, policy, prompt, limit), expected)


def test_pages_that_gave_way_do_not_come_back_with_a_new_basis(make_model):
    """What is held is the same whether the basis changes or not."""
    decoder = Decoder(make_model("llama-dynamic", vocab_size=400))
    chosen = choose("raas:budget=96", {})
    policy = load("raas").Policy(chosen.options, read(decoder, 20, 80, plain=True), WIDE)
    found = [step(decoder, policy, token) for token in ORDER[20:130]]
    assert np.isfinite(found).all()
    assert policy.spent().held == 20 + 64
    everything = dense.Policy(dense.Options(), read(decoder, 20, 110, plain=True), WIDE)
    others = [step(decoder, everything, token) for token in ORDER[20:130]]
    assert np.abs(np.array(found[:64]) - others[:64]).max() < 1e-3
    assert np.abs(found[-1] - others[-1]).max() > 1e-3
