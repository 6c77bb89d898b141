"""Steps that are captured in graphs bring nothing from the host, whatever the policy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from device_alone import DeviceAlone
from sampled import covering

from longctx.core.ask.recompute import recompute
from longctx.core.contracts.policy import Policy
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies import choose, load
from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.decode.stepping.one_token import OneToken
from longctx.core.decode.stepping.step import Step
from longctx.core.model.adapter import Decoder
from longctx.core.profile.sampling import Sampling

IDS = torch.from_numpy(np.random.default_rng(7).permutation(400)[:100])
POLICIES = {
    "dense": {"dense"},
    "recycled:budget=20,stride=7": {"recycled", "full"},
    "recycled:budget=4,stride=50": {"recycled", "full"},
    "recycled:budget=80,similarity=0.5,compare=3": {"recycled"},
    "snapkv:budget=40,window=8": {"snapkv"},
    "quest:budget=64": {"quest"},
    "raas:budget=176": {"step", "open"},
    "raas:budget=176,rule=alpha": {"step", "open"},
    "quest+raas:budget=64,answer_budget=64": {"step", "open"},
}
STEPS, LONG = 20, 60  # in which each kind comes once, and twice


def begin(decoder: Decoder, text: str) -> tuple[Policy, torch.Tensor]:
    """A policy over a prompt that was read, and its last hidden state (1, E)."""
    decoding = choose(text, {})
    given = IDS[:0], IDS[:0], IDS, decoding.options.reserve(LONG), decoding.options.observed
    cache, hidden = recompute(decoder, *given)
    return load(decoding.name).Policy(decoding.options, cache, 1 << 12), hidden


@pytest.mark.parametrize(
    ("text", "name"), covering(POLICIES, ["llama-default", "qwen3-windows"], meet=1)
)
def test_no_step_brings_anything_from_the_host(make_model, text, name):
    decoder = Decoder(make_model(name, vocab_size=400, max_position_embeddings=1 << 12))
    policy, hidden = begin(decoder, text)
    reader = OneToken.of(decoder) or decoder
    chooser = Chooser(Sampling(temperature=0.7, seed=1), torch.device("cpu"))
    step, kinds = Step(reader, policy, chooser, IDS, STEPS), set()
    step.first(decoder.logits(hidden))
    for _ in range(STEPS - 1):
        if step.kind is None:
            step()
        else:
            kinds.add(step.kind)
            with DeviceAlone():
                step()
        step.advance()
    assert kinds == POLICIES[text]


@pytest.mark.gpu
@pytest.mark.parametrize("text", POLICIES)
def test_on_a_gpu_all_kinds_are_captured(make_model, text):
    sizes = {"head_dim": 64, "vocab_size": 400, "max_position_embeddings": 1 << 12}
    decoder = Decoder(make_model("llama-default", torch.bfloat16, **sizes).to("cuda"))
    answers = {}
    for capture in (False, True):
        policy, hidden = begin(decoder, text)
        more = IDS, Sampling(temperature=1.5, seed=4), LONG, set(), capture
        answer = Generation(decoder, policy, hidden, *more)
        answers[capture] = [*answer.tokens()]
    assert answers[True] == answers[False]
    assert {*answer.captured} == POLICIES[text]


def fill_by_mask(x: torch.Tensor) -> None:
    x[x < 1] = 0


def fill_one(x: torch.Tensor) -> None:
    x[1] = 0


@pytest.mark.parametrize(
    "wrong",
    [
        fill_by_mask,
        fill_one,
        lambda x: x[[1, 0]],
        lambda x: x + torch.tensor([1.0]),
        lambda x: x.copy_(x.new_tensor([1.0, 2.0])),
        lambda x: torch.where(x > 0, x, torch.tensor(1.0)),
    ],
)
def test_what_comes_from_the_host_is_noticed(wrong: Callable[[torch.Tensor], object]):
    x = torch.zeros(2)
    with pytest.raises(AssertionError, match="aten"), DeviceAlone():
        wrong(x)


def test_what_stays_on_the_device_is_not():
    x = torch.zeros(2)
    with DeviceAlone():
        x[1:] = 1
        x[:] = torch.where(x > 0, x + 1, 2.0).masked_fill(x == 0, 3.0)
    assert x.tolist() == [3.0, 2.0]
