"""The kernels of states in eight bits against their definitions, and these against their words."""

import pytest
import torch

from longctx.kernels import door
from longctx.kernels.gated_product_ref import GELU_TANH, SILU, Activation
from longctx.kernels.residual_norm_ref import FORMS, OFFSET, Scaled
from longctx.kernels.row_scaled_ref import FP8, LARGEST

SHAPES = [(3, 64), (2, 112)]


@pytest.fixture
def kernel(device):
    from longctx.kernels import row_scaled

    return row_scaled


def drawn(shape, dtype=torch.float32, device="cpu", count=1):
    generator = torch.Generator().manual_seed(shape[-1])
    found = [torch.randn(shape, generator=generator) for _ in range(count)]
    scales = torch.logspace(-2, 1, shape[0])[:, None]
    return [(x * scales).to(device, dtype) for x in found]


def bits(rows):
    return rows.values.view(torch.uint8)


def same(found, expected):
    """Equal but for entries that were rounded from the middle of two numbers.

    Triton's interpreter loses what rounding carries into the exponent: such entries have no bits
    behind the first one.
    """
    assert (found.values.dtype, found.values.shape) == (FP8, expected.values.shape)
    assert torch.allclose(found.scales, expected.scales, rtol=2e-3, atol=0)
    apart = (bits(found).int() - bits(expected).int()).abs()
    if found.values.device.type == "cpu":
        assert float((apart > 0).float().mean()) < 0.1
        apart = apart[bits(expected) % 8 != 0]
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) < 0.03


def test_a_row_is_its_numbers_times_its_scale():
    (x,) = drawn((7, 96))
    rows = door.row_scaled.definition(x)
    assert rows.values.float().abs().amax(1).tolist() == [LARGEST] * 7
    assert torch.allclose(rows.scales[:, 0], x.abs().amax(1) / LARGEST)
    again = rows.values.float() * rows.scales
    # Three bits behind the first one; the smallest numbers are fractions of the largest.
    assert ((again - x).abs() <= x.abs() / 16 + x.abs().amax(1, keepdim=True) * 2**-18).all()


def test_zeros_and_one_outlier():
    x = torch.zeros(3, 32)
    x[1, 5], x[2] = 1e30, 1e-30
    rows = door.row_scaled.definition(x)
    assert rows.values.float().isfinite().all()
    assert rows.scales.isfinite().all()
    assert (rows.values.float() * rows.scales)[1, 5] == pytest.approx(1e30, rel=1e-6)
    assert not rows.values[0].float().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_alone(kernel, device, shape, dtype):
    (x,) = drawn(shape, dtype, device)
    assert kernel.refusal(x) is None
    same(kernel.row_scaled(x), door.row_scaled.definition(x))
    wide = torch.cat([x, x], dim=1)[:, : shape[1]]  # rows that lie apart
    same(kernel.row_scaled(wide), door.row_scaled.definition(x))
    zeros = torch.zeros_like(x)
    assert torch.equal(bits(kernel.row_scaled(zeros)), bits(door.row_scaled.definition(zeros)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sum_and_norm(kernel, device, form, shape):
    x, added = drawn(shape, torch.float32, device, 2)
    norm = Scaled(torch.linspace(-0.5, 1.5, shape[1]).to(device), 1e-5, form)
    after = Scaled(torch.linspace(1.0, 2.0, shape[1]).to(device), 1e-3, OFFSET)
    for given in ((None, None, 1.0), (added, None, 1.0), (added, after, 0.3)):
        assert kernel.residual_row_scaled_refusal(x, *given, norm) is None
        total, rows = kernel.residual_row_scaled(x, *given, norm)
        sums, expected = door.residual_row_scaled.definition(x, *given, norm)
        assert torch.allclose(total, sums, rtol=1e-5, atol=1e-5)
        same(rows, expected)


@pytest.mark.parametrize("name", [SILU, GELU_TANH])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gates(kernel, device, name, shape):
    (x,) = drawn(shape, torch.float16, device)
    activation = Activation(name)
    assert kernel.gated_row_scaled_refusal(x, activation) is None
    found = kernel.gated_row_scaled(x, activation)
    same(found, door.gated_row_scaled.definition(x, activation))


def test_what_the_kernels_do_not_take(kernel, device):
    (x,) = drawn((4, 64), torch.float32, device)
    norm = Scaled(torch.ones(64, device=device), 1e-5)
    assert all(map(kernel.refusal, (x.double(), x[None], x[:, ::2])))
    assert kernel.residual_row_scaled_refusal(x, x[:, :32], None, 1.0, norm)
    assert kernel.gated_row_scaled_refusal(x, Activation("clamped"))
    assert kernel.gated_row_scaled_refusal(x[:, :63])
