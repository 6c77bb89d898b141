"""The kernel that sums what experts give against its definition, and that against a loop."""

import pytest
import torch

from longctx.kernels import door

reference = door.expert_sum.definition


@pytest.fixture
def kernel(device):
    from longctx.kernels import expert_sum

    return expert_sum


def given(T, K, E, dtype, device, wide=False, biased=False):
    generator = torch.Generator().manual_seed(T)
    rows = torch.randn(T * K, E, generator=generator).to(device, dtype)
    places = torch.randperm(T * K, generator=generator).view(T, K).to(device)
    weights = torch.rand(T, K, generator=generator).to(device, torch.float32 if wide else dtype)
    if not biased:
        return rows, places, weights
    biases = torch.randn(5, E, generator=generator).to(device, dtype)
    return rows, places, weights, biases, torch.randint(5, (T, K), generator=generator).to(device)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("size", [(7, 4, 40), (3, 1, 1500), (1, 8, 2)], ids=str)
def test_it_is_the_definition(kernel, device, size, dtype, wide, biased):
    arguments = given(*size, dtype, device, wide, biased)
    assert kernel.refusal(*arguments) is None
    found, expected = kernel.expert_sum(*arguments), reference(*arguments)
    assert found.dtype == expected.dtype == dtype
    eps = torch.finfo(dtype).eps
    assert torch.allclose(found, expected, rtol=2 * eps, atol=4 * eps)


def test_the_definition_is_a_loop():
    rows, places, weights, biases, experts = given(4, 3, 6, torch.float64, "cpu", biased=True)
    found = reference(rows, places, weights, biases, experts)
    for t in range(4):
        parts = [weights[t, k] * (rows[places[t, k]] + biases[experts[t, k]]) for k in range(3)]
        assert torch.allclose(found[t], sum(parts))


def test_what_it_refuses(kernel, device):
    rows, places, weights, biases, experts = given(4, 3, 6, torch.float32, device, biased=True)
    assert "float64 weights" in kernel.refusal(rows, places, weights.double())
    assert "no experts" in kernel.refusal(rows, places, weights, biases)
    assert "another dtype" in kernel.refusal(rows, places, weights, biases.half(), experts)
    assert "contiguous" in kernel.refusal(rows.T.contiguous().T, places, weights)
    assert "65 experts" in kernel.refusal(rows, places.new_zeros(2, 65), weights.new_zeros(2, 65))
    narrow = rows.bfloat16(), places, weights.bfloat16()
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(*narrow)))


@pytest.mark.gpu
@pytest.mark.parametrize("biased", [False, True])
def test_real_sizes(kernel, biased):
    arguments = given(8192, 4, 2880, torch.bfloat16, "cuda", biased=biased)
    found, expected = kernel.expert_sum(*arguments), reference(*arguments)
    assert float((found != expected).float().mean()) < 1e-2
    assert (found.float() - expected.float()).abs().max() < 0.05
