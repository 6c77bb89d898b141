"""The kernel of sum and norm against its definition, and that against what models compute."""

from itertools import product

import pytest
import torch
from sampled import covering
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from longctx.kernels import door
from longctx.kernels.residual_norm_ref import FORMS, NARROW, OFFSET, WIDE, Scaled, normed

reference = door.residual_norm.definition
SHAPES = [(5, 64), (3, 100), (7, 2, 24), (1, 1, 2), (9, 1300)]
CASES = covering(SHAPES, [torch.float32, torch.float16], meet=1)
MODULES = {NARROW: LlamaRMSNorm, WIDE: GptOssRMSNorm, OFFSET: Gemma2RMSNorm}


@pytest.fixture
def kernel(device):
    from longctx.kernels import residual_norm

    return residual_norm


def drawn(shape, dtype, device, count=2):
    generator = torch.Generator().manual_seed(shape[-1])
    return [torch.randn(shape, generator=generator).to(device, dtype) for _ in range(count)]


def norm_of(E, form, dtype, device, eps=1e-5):
    weight = torch.linspace(-0.5, 1.5, E).to(device, dtype)
    return Scaled(weight, eps, form)


def same(found, expected):
    """Equal to a few roundings: only the order of the sums of squares differs."""
    eps = torch.finfo(expected.dtype).eps
    return torch.allclose(found, expected, rtol=8 * eps, atol=8 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_a_model_computes_to_the_bit(form, dtype):
    (x,) = drawn((6, 48), dtype, "cpu", 1)
    norm = norm_of(48, form, dtype, "cpu")
    module = MODULES[form](48, eps=norm.eps).to(dtype)
    module.weight.data = norm.weight
    assert torch.equal(normed(x, norm), module(x))
    if dtype != torch.float32:
        others = [normed(x, norm._replace(form=other)) for other in FORMS if other != form]
        assert not any(torch.equal(other, module(x)) for other in others)


@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_a_sum_that_is_handed_on_has_the_same_norm_to_the_bit(kernel, device, shape, dtype):
    """A stage of layers gets the states alone, and norms them itself; `chunk_pass.py`."""
    x, added = drawn(shape, dtype, device)
    for after, before in product((None, *FORMS), FORMS):
        norm = norm_of(shape[-1], before, dtype, device)
        more = {"after": after and norm_of(shape[-1], after, dtype, device), "factor": 0.3}
        for compute in (kernel.residual_norm, reference):
            total, at_once = compute(x, added, **more, before=norm)
            alone, _ = compute(x, added, **more)
            assert torch.equal(alone, total)
            assert torch.equal(compute(alone, before=norm)[1], at_once)


@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_it_is_the_definition(kernel, device, shape, dtype):
    x, added = drawn(shape, dtype, device)
    for after, before, factor in product((None, *FORMS), (None, *FORMS), (1.0, 0.3)):
        given = {
            "x": x,
            "added": added,
            "after": after and norm_of(shape[-1], after, dtype, device, 1e-3),
            "factor": factor,
            "before": before and norm_of(shape[-1], before, dtype, device),
        }
        assert kernel.refusal(**given) is None
        found, expected = kernel.residual_norm(**given), reference(**given)
        assert same(found[0], expected[0]), (after, before, factor)
        assert same(found[1], expected[1]), (after, before, factor)
        if after is None:
            assert torch.equal(found[0], expected[0])


def test_only_a_norm_and_rows_of_a_wider_matrix(kernel, device):
    (wide,) = drawn((6, 5, 32), torch.float32, device, 1)
    x, norm = wide[:, 1:4], norm_of(32, NARROW, torch.float32, device)
    total, out = kernel.residual_norm(x, before=norm)
    assert total is x
    assert same(out, reference(x, before=norm)[1])
    assert out.is_contiguous()
    rows = wide[:, 2]
    assert same(
        kernel.residual_norm(rows, rows, before=norm)[1], reference(rows, rows, before=norm)[1]
    )


def test_what_it_refuses(kernel, device):
    x, added = drawn((4, 8), torch.float32, device)
    norm = norm_of(8, NARROW, torch.float32, device)
    assert kernel.refusal(x, added) is None
    assert "nothing" in kernel.refusal(x)
    assert "nothing" in kernel.refusal(x, after=norm)
    assert "one of them" in kernel.refusal(x, added.half())
    assert "one of them" in kernel.refusal(x, before=norm._replace(weight=norm.weight.double()))
    assert "another shape" in kernel.refusal(x, added[:1])
    assert "no states" in kernel.refusal(x[0], added[0])
    assert "contiguous" in kernel.refusal(x.T, added.T)
    assert (device == "cpu") == (
        "interpreter" in str(kernel.refusal(x.bfloat16(), added.bfloat16()))
    )


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(8192, 4096), (8192, 3584), (8192, 32, 128)], ids=str)
def test_real_states(kernel, form, shape):
    x, added = drawn(shape, torch.bfloat16, "cuda")
    norm = norm_of(shape[-1], form, torch.bfloat16, "cuda")
    for given in (
        {"added": added, "before": norm},
        {"before": norm},
        {"added": added, "after": norm},
    ):
        found, expected = kernel.residual_norm(x, **given), reference(x, **given)
        for one, other in zip(found, expected, strict=True):
            assert float((one != other).float().mean()) < 1e-3  # few values fall on an edge
            assert (one.float() - other.float()).abs().max() <= 2**-6 * other.abs().max()
