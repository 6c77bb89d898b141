"""The kernel that merges two attentions against its definition, and that against one softmax."""

import pytest
import torch

from longctx.kernels import door

reference = door.merged_attention.definition
SIZES = [(4, 9, 64), (2, 70, 24), (3, 1, 128)]


@pytest.fixture
def kernel(device):
    from longctx.kernels import merged_attention

    return merged_attention


def given(size, dtype, device, sinks=False):
    """Two attentions; the second lies in memory as (T, H, D)."""
    H, T, D = size
    generator = torch.Generator().manual_seed(T)
    past = torch.randn(H, T, D, generator=generator)
    own = torch.randn(T, H, D, generator=generator).transpose(0, 1)
    past_lse, own_lse = (torch.randn(H, T, generator=generator) * 4 for _ in range(2))
    wide = torch.promote_types(dtype, torch.float32)
    found = past.to(device, dtype), past_lse.to(device, wide)
    found = *found, own.to(device, dtype), own_lse.to(device, wide)
    return (*found, torch.linspace(-2, 3, H).to(device, dtype)) if sinks else found


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_it_is_the_definition(kernel, device, size, dtype, sinks):
    arguments = given(size, dtype, device, sinks)
    assert kernel.refusal(*arguments) is None
    (out, lse), (expected, sums) = kernel.merged_attention(*arguments), reference(*arguments)
    eps = torch.finfo(dtype).eps
    assert torch.allclose(out, expected, rtol=4 * eps, atol=4 * eps)
    assert torch.allclose(lse, sums, atol=1e-5)


def test_the_definition_is_one_softmax():
    past, past_lse, own, own_lse, sinks = given(SIZES[0], torch.float64, "cpu", True)
    weights = torch.stack([past_lse, own_lse, sinks[:, None].expand_as(past_lse)]).softmax(0)
    out, lse = reference(past, past_lse, own, own_lse, sinks)
    assert torch.allclose(out, weights[0, ..., None] * past + weights[1, ..., None] * own)
    summed = past_lse.exp() + own_lse.exp() + sinks.exp()[:, None]
    assert torch.allclose(lse, summed.log())


def test_far_apart_and_nothing_in_one(kernel, device):
    past, past_lse, own, own_lse = given(SIZES[0], torch.float32, device)
    for value in (-torch.inf, -500.0, 500.0):
        lse = torch.full_like(past_lse, value)
        (out, found), (expected, sums) = (
            f(past, lse, own, own_lse) for f in (kernel.merged_attention, reference)
        )
        assert torch.allclose(out, expected, atol=1e-6)
        assert torch.allclose(found, sums)


def test_what_it_refuses(kernel, device):
    past, past_lse, own, own_lse = given(SIZES[0], torch.float32, device)
    assert "float64" in kernel.refusal(past.double(), past_lse, own, own_lse)
    assert "log-sum-exps" in kernel.refusal(past, past_lse.double(), own, own_lse)
    assert "contiguous" in kernel.refusal(past.mT.contiguous().mT, past_lse, own, own_lse)
    narrow = past.bfloat16(), past_lse, own.bfloat16(), own_lse
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(*narrow)))


@pytest.mark.gpu
@pytest.mark.parametrize("sinks", [False, True])
def test_real_sizes(kernel, sinks):
    arguments = given((32, 8192, 128), torch.bfloat16, "cuda", sinks)
    (out, lse), (expected, sums) = kernel.merged_attention(*arguments), reference(*arguments)
    assert float((out != expected).float().mean()) < 1e-2
    assert (out.float() - expected.float()).abs().max() < 0.05
    assert torch.allclose(lse, sums, atol=1e-4)
