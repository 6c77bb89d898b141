"""The kernel of gate and up against its definition."""

import pytest
import torch
import torch.nn.functional as F

from longctx.kernels import door
from longctx.kernels.gated_product_ref import GELU_TANH, SILU

reference = door.gated_product.definition


@pytest.fixture
def kernel(device):
    from longctx.kernels import gated_product

    return gated_product


def drawn(T, inner, dtype, device):
    generator = torch.Generator().manual_seed(inner)
    return (torch.randn(T, 2 * inner, generator=generator) * 4).to(device, dtype)


@pytest.mark.parametrize("activation", [SILU, GELU_TANH])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("size", [(3, 40), (1, 1), (2, 2100)], ids=str)
def test_it_is_the_definition(kernel, device, size, dtype, activation):
    x = drawn(*size, dtype, device)
    expected = reference(x, activation)
    found = kernel.gated_product(x, activation)
    assert kernel.refusal(x, activation) is None
    # PyTorch's tanh near -1 leaves few digits of their sum.
    assert torch.allclose(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-5)


def test_the_definition_is_gate_then_up():
    x = drawn(4, 6, torch.float64, "cpu")
    assert torch.equal(reference(x), F.silu(x[:, :6]) * x[:, 6:])
    approximate = F.gelu(x[:, :6], approximate="tanh") * x[:, 6:]
    assert torch.equal(reference(x, GELU_TANH), approximate)
    assert not torch.allclose(reference(x), approximate, atol=1e-3)


def test_extreme_gates(kernel, device):
    x = torch.tensor([[-1e4, -90.0, 0.0, 90.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]], device=device)
    for activation in (SILU, GELU_TANH):
        found = kernel.gated_product(x, activation)
        assert torch.allclose(found, reference(x, activation), rtol=1e-6, atol=1e-6)


def test_what_it_refuses(kernel, device):
    x = drawn(2, 4, torch.float32, device)
    assert "float64" in kernel.refusal(x.double())
    assert "relu" in kernel.refusal(x, "relu")
    assert "halves" in kernel.refusal(x[:, :7])
    assert "halves" in kernel.refusal(x.T.contiguous().T)
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(x.bfloat16())))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", [SILU, GELU_TANH])
def test_real_states(kernel, activation):
    x = drawn(4096, 14336, torch.bfloat16, "cuda")
    found, expected = kernel.gated_product(x, activation), reference(x, activation)
    assert float((found != expected).float().mean()) < 1e-3
    assert torch.allclose(found.float(), expected.float(), rtol=2**-6, atol=1e-4)
