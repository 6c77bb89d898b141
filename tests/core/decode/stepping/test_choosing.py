"""Choosing a token: what it is compared with are PyTorch's draw and transformers' penalty."""

import pytest
import torch

from longctx.core.decode.stepping.choosing import Chooser
from longctx.core.profile.sampling import Sampling

CPU = torch.device("cpu")


@pytest.mark.parametrize("vocabulary", [2, 61, 8192])
def test_draws_are_those_of_multinomial(vocabulary):
    logits = torch.randn(20, 1, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    choose = Chooser(Sampling(temperature=1.0, seed=5), CPU)
    generator = torch.Generator().manual_seed(5)
    for row in logits:
        expected = torch.multinomial(torch.softmax(row, -1), 1, generator=generator)[0]
        assert choose(torch.tensor([0]), row).tolist() == expected.tolist()


def test_a_token_counts_once_however_often_it_was_seen():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).mul_(0.1)
    logits[0, 7] = 1.0
    choose = Chooser(Sampling(repetition_penalty=1.9), CPU)
    once, often = torch.tensor([7, 3]), torch.tensor([7, 3, 7, 7, 7, 3])
    [kept] = choose._processors
    assert torch.equal(kept(once[None], logits), kept(often[None], logits))
    assert choose(often, logits).item() == 7
    assert Chooser(Sampling(repetition_penalty=50.0), CPU)(often, logits).item() != 7


def test_without_a_seed_draws_differ():
    chosen = [
        [Chooser(Sampling(temperature=1.0), CPU)(torch.tensor([0]), torch.zeros(1, 1 << 20)).item()]
        for _ in range(2)
    ]
    assert chosen[0] != chosen[1]
