"""The kernel of gate and up against its definition."""

import pytest
import torch
import torch.nn.functional as F

from longctx.kernels import door
from longctx.kernels.gated_product_ref import CLAMPED, GELU_TANH, SILU, Activation, Biases

reference = door.gated_product.definition
ACTIVATIONS = [Activation(SILU), Activation(GELU_TANH), Activation(CLAMPED, 1.702, 7.0)]


@pytest.fixture
def kernel(device):
    from longctx.kernels import gated_product

    return gated_product


def drawn(rows, inner, dtype, device):
    generator = torch.Generator().manual_seed(inner)
    return (torch.randn(rows, 2 * inner, generator=generator) * 4).to(device, dtype)


def biases_of(x, experts=3):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(experts, x.shape[1], generator=generator).to(x)
    return Biases(rows, torch.randint(experts, (len(x),), generator=generator).to(x.device))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("size", [(3, 40), (1, 1), (2, 2100)], ids=str)
def test_it_is_the_definition(kernel, device, size, dtype, activation, biased):
    x = drawn(*size, dtype, device)
    biases = biases_of(x) if biased else None
    assert kernel.refusal(x, activation, biases) is None
    expected = reference(x, activation, biases)
    found = kernel.gated_product(x, activation, biases)
    # PyTorch's tanh near -1 leaves few digits of their sum.
    assert torch.allclose(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-5)
    if biased:
        assert not torch.allclose(found, reference(x, activation), atol=1e-2)


def test_the_definition_is_gate_then_up():
    x = drawn(4, 6, torch.float64, "cpu")
    assert torch.equal(reference(x), F.silu(x[:, :6]) * x[:, 6:])
    approximate = F.gelu(x[:, :6], approximate="tanh") * x[:, 6:]
    assert torch.equal(reference(x, Activation(GELU_TANH)), approximate)
    assert not torch.allclose(reference(x), approximate, atol=1e-3)


def test_clamped_alternates_and_bounds():
    x = torch.tensor([[100.0, 1.0, 2.0, 100.0, -100.0, -100.0]], dtype=torch.float64)
    found = reference(x, Activation(CLAMPED, 1.702, 7.0))[0]

    def one(gate, up):
        return (up + 1) * gate * torch.sigmoid(torch.tensor(1.702 * gate, dtype=torch.float64))

    expected = torch.stack([one(7.0, 1.0), one(2.0, 7.0), one(-100.0, -7.0)])
    assert torch.allclose(found, expected)


def test_extreme_gates(kernel, device):
    x = torch.tensor([[-1e4, -90.0, 0.0, 90.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]], device=device)
    for activation in ACTIVATIONS:
        found = kernel.gated_product(x, activation)
        assert torch.allclose(found, reference(x, activation), rtol=1e-6, atol=1e-6)


def test_what_it_refuses(kernel, device):
    x = drawn(2, 4, torch.float32, device)
    biases = biases_of(x)
    assert "float64" in kernel.refusal(x.double())
    assert "relu" in kernel.refusal(x, Activation("relu"))
    assert "halves" in kernel.refusal(x[:, :7])
    assert "halves" in kernel.refusal(x.T.contiguous().T)
    assert "biases" in kernel.refusal(x, biases=biases._replace(rows=biases.rows.half()))
    assert "contiguous" in kernel.refusal(x, biases=biases._replace(rows=biases.rows.T))
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(x.bfloat16())))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda one: one.name)
def test_real_states(kernel, activation):
    x = drawn(4096, 14336, torch.bfloat16, "cuda")
    for biases in (None, biases_of(x)):
        found, expected = (
            kernel.gated_product(x, activation, biases),
            reference(x, activation, biases),
        )
        assert float((found != expected).float().mean()) < 1e-2
        assert torch.allclose(found.float(), expected.float(), rtol=2**-6, atol=1e-4)
