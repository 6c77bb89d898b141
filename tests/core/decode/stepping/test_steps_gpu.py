"""Steps on a GPU: captured in graphs and one ahead of the host, they choose what eager ones do."""

import pytest
import torch

from longctx.core.ask.recompute import recompute
from longctx.core.decode.decode import Generation
from longctx.core.decode.policies.dense import Options, Policy
from longctx.core.model.adapter import Decoder
from longctx.core.profile.sampling import Sampling

pytestmark = pytest.mark.gpu


class TwoKinds(Policy):
    """Dense, with a step of another kind between."""

    every = 3

    @property
    def kind(self) -> str | None:
        return "other" if self._looks.steps % self.every == 0 else "dense"


@pytest.fixture(scope="module")
def gpu_decoder(make_model):
    """A random model that the kernels take: captured steps need them."""
    sizes = {"head_dim": 64, "vocab_size": 400, "max_position_embeddings": 1024}
    return Decoder(make_model("llama-default", torch.bfloat16, **sizes).to("cuda"))


@pytest.fixture
def answered(gpu_decoder):
    """Answers of a random model on a GPU, captured or not: (tokens, the answer)."""
    prompt = torch.randint(400, (70,), generator=torch.Generator().manual_seed(1))

    def answer(capture: bool, policy=Policy, limit: int = 48, ends=(), **sampling):
        read, hidden = recompute(gpu_decoder, prompt[:0], prompt, prompt[:0], limit)
        policy = policy(Options(), read, 1024)
        parts = (hidden, prompt, Sampling(**sampling), limit, set(ends), capture)
        answer = Generation(gpu_decoder, policy, *parts)
        return [*answer.tokens()], answer

    return answer


@pytest.mark.parametrize("policy", [Policy, TwoKinds])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"repetition_penalty": 1.7},
        {"temperature": 1.5, "seed": 4},
        {"temperature": 2.0, "top_k": 90, "top_p": 0.9, "min_p": 0.01, "seed": 5},
    ],
)
def test_captured_steps_choose_what_eager_ones_do(answered, policy, sampling):
    expected, eager = answered(False, policy, **sampling)
    tokens, answer = answered(True, policy, **sampling)
    assert tokens == expected
    assert len(tokens) == 48
    assert answer.spent() == eager.spent()
    assert eager.captured == ()
    assert set(answer.captured) == ({"dense"} if policy is Policy else {"dense", "other"})


@pytest.mark.parametrize("number", [0, 1, 2, 3, 30])
def test_an_end_is_found_one_step_ahead(answered, number):
    whole, _ = answered(False, temperature=1.5, seed=4)
    end = whole[number]
    before = whole[: whole.index(end)]
    for capture in (False, True):
        tokens, answer = answered(capture, ends={end}, temperature=1.5, seed=4)
        assert tokens == before
        assert (answer.stop, answer.count) == ("end", len(before))
        assert answer.spent().held == answer._policy._start + len(before)


def test_memory_stays_as_it_is(answered):
    held = []

    class Watched(Policy):
        def advance(self) -> None:
            super().advance()
            held.append(torch.cuda.memory_allocated())

    tokens, answer = answered(True, Watched, limit=300)
    assert answer.captured == ("dense",)
    assert len(tokens) == 300
    assert max(held[20:]) == min(held[20:])


def test_what_waits_for_the_device_goes_on_uncaptured(answered):
    class Waiting(Policy):
        def begin_token(self) -> None:
            assert int(self._count) > 0

    expected, _ = answered(False, temperature=1.5, seed=4)
    tokens, answer = answered(True, Waiting, temperature=1.5, seed=4)
    assert tokens == expected
    assert answer.captured == ()
    assert torch.rand(3, device="cuda").shape == (3,)  # the device's own generator is usable
