"""Attention over padded keys whose number only the device knows."""

import logging

import pytest
import torch

from longctx.core.model.attention import causal_attention
from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels import window_attention_ref as reference

# Triton's older interpreters take a loop's bounds from arrays of one element.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

SCALE = 0.125
# H, G, T, S, D, totals
SIZES = [
    (32, 8, 1, 300, 128, (1, 2, 127, 300)),
    (32, 8, 37, 300, 64, (37, 38, 64, 211, 300)),
    (32, 8, 130, 1100, 80, (130, 700, 1029, 1100)),
    (4, 4, 512, 8192, 128, (512, 4128, 8100, 8192)),
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import window_attention

    if device == "cuda" and not window_attention.starts_early(torch.device(device)):
        pytest.skip("flash attention is made for this GPU")
    return window_attention


def states(H, G, T, S, D, total, dtype, device):
    """Queries, padded keys and values that are wild from `total` on, and `total`."""
    generator = torch.Generator().manual_seed(T)
    q = torch.randn(T, H, D, generator=generator).transpose(0, 1)
    k, v = torch.randn(2, S, G, D, generator=generator).unbind()
    k[total:], v[total:] = torch.nan, torch.nan
    return *(x.to(device, dtype) for x in (q, k, v)), torch.tensor([total], device=device)


def attend(q, k, v, total):
    return door.window_attention(q, k, v, SCALE, total)


def by_definition(q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, mask, *, scale):
    """The operator for one sequence, with what it demands of its arguments."""
    assert cum_q.dtype == cum_k.dtype == torch.int32
    assert (cum_q.tolist(), max_q) == ([0, len(q)], len(q))
    assert (max_k, dropout, causal, mask) == (len(k), 0.0, True, False)
    first, total = cum_k.tolist()
    k, v = (x[first:total].transpose(0, 1) for x in (k, v))
    out = causal_attention(q.transpose(0, 1), k, v, scale)
    return out.transpose(0, 1), None, None, None, None


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_what_the_operator_is_asked(monkeypatch, size):
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", by_definition)
    for total in size[-1]:
        q, k, v, count = states(*size[:-1], total, torch.float32, "cpu")
        out = reference.flash(q, k, v, SCALE, count)
        k, v = (x[:total].transpose(0, 1) for x in (k, v))
        assert torch.allclose(out, causal_attention(q, k, v, SCALE), atol=1e-6)


def test_where_it_does_not_run_the_caller_is_told(caplog):
    caplog.set_level(logging.INFO, "longctx.kernels.choice")
    for _ in range(2):
        assert attend(*states(4, 2, 3, 20, 64, 9, torch.bfloat16, "cpu")) is None
    assert [record.getMessage() for record in caplog.records] == [
        "window_attention: the reference (the tensors are on cpu)",
        "window attention: with the number of keys on the host (the tensors are on cpu)",
    ]


def near(out, q, k, v, total, within):
    """Whether it is, by its norm, causal attention to the keys in use."""
    k, v = (x[:total].transpose(0, 1).float() for x in (k, v))
    expected = causal_attention(q.float(), k, v, SCALE)
    return (out.float() - expected).norm() / expected.norm() < within


# H, G, T, S, D, total: rows and keys of one program and of several, whole and in part.
CUTS = [
    (4, 2, 128, 256, 64, 128),
    (4, 2, 130, 500, 64, 500),
    (2, 1, 260, 700, 80, 533),
    (2, 2, 1, 300, 16, 257),
    (2, 1, 3, 140, 128, 128),
    (4, 1, 256, 600, 24, 513),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_kernel_is_causal_attention_to_the_keys_in_use(kernel, device, cut):
    q, k, v, total = states(*cut, torch.float16, device)
    assert kernel.refusal(q, k, v, SCALE, total) is None
    out = kernel.window_attention(q, k, v, SCALE, total)
    assert out.transpose(0, 1).is_contiguous()
    assert near(out, q, k, v, cut[-1], 2e-3)


def test_the_kernel_reads_heads_where_they_are(kernel, device):
    q, k, v, total = states(4, 2, 20, 90, 32, 77, torch.float16, device)
    both = torch.stack([k, v], dim=1)  # as of one product
    q = torch.cat([q, q], dim=2)[..., :32]
    out = kernel.window_attention(q, both[:, 0], both[:, 1], SCALE, total.int())
    assert near(out, q, k, v, 77, 2e-3)


def test_logits_far_apart_overflow_nothing(kernel, device):
    q, k, v, total = states(2, 1, 70, 200, 16, 190, torch.float16, device)
    q[:] = 100
    k[:, :, :] = 100
    k[:100] = -100
    out = kernel.window_attention(q, k, v, SCALE, total)
    assert near(out, q, k, v, 190, 2e-3)


def test_what_the_kernel_refuses(kernel):
    q, k, v, total = states(2, 1, 3, 9, 64, 9, torch.float16, "cpu")
    assert kernel.refusal(q, k, v, SCALE, total) is None
    assert "float32 queries" in kernel.refusal(q.float(), k.float(), v.float(), SCALE, total)
    assert "float32 values" in kernel.refusal(q, k, v.float(), SCALE, total)
    assert "float32 total" in kernel.refusal(q, k, v, SCALE, total.float())
    assert "no rows" in kernel.refusal(q[:, :0], k, v, SCALE, total)
    assert "no rows" in kernel.refusal(q, k.mT, v, SCALE, total)
    assert "16 bytes" in kernel.refusal(q, k[..., 1:], v, SCALE, total)
    assert "132" in kernel.refusal(*states(2, 1, 3, 9, 132, 9, torch.float16, "cpu")[:3], 1, total)
    assert "interpreter" in kernel.refusal(*(x.bfloat16() for x in (q, k, v)), SCALE, total)


def test_other_gpus_take_flash_attention(kernel, monkeypatch):
    class There(torch.Tensor):  # on no GPU, but says so
        device = torch.device("cuda")

    q, k, v, total = states(2, 1, 3, 9, 128, 9, torch.float16, "cpu")
    q = q.as_subclass(There)
    monkeypatch.setattr(kernel, "starts_early", lambda device: False)
    assert "flash attention" in kernel.refusal(q, k, v, SCALE, total)
    monkeypatch.setattr(kernel, "starts_early", lambda device: True)
    monkeypatch.setattr(kernel, "shared_memory", lambda device: 101376)  # of a desktop's
    assert "229376 bytes" in kernel.refusal(q, k, v, SCALE, total)
    monkeypatch.setattr(kernel, "shared_memory", lambda device: 232448)
    assert kernel.refusal(q, k, v, SCALE, total) is None


def test_the_door_takes_the_kernel(device, monkeypatch):
    given = states(4, 2, 70, 200, 64, 180, torch.float16, device)
    monkeypatch.setenv(choice_module.VARIABLE, "triton")
    assert near(attend(*given), *given[:3], 180, 2e-3)
    monkeypatch.setenv(choice_module.VARIABLE, "reference")
    assert attend(*given) is None


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "within"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)], ids=str
)
def test_on_a_gpu_it_is_causal_attention_to_the_keys_in_use(size, dtype, within):
    for total in size[-1]:
        q, k, v, count = states(*size[:-1], total, dtype, "cuda")
        for out in (attend(q, k, v, count), reference.flash(q, k, v, SCALE, count)):
            assert out is not None
            assert near(out, q, k, v, total, within)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "D"), [(torch.float32, 64), (torch.bfloat16, 68)], ids=str)
def test_what_neither_takes(dtype, D):
    assert attend(*states(4, 2, 3, 20, D, 9, dtype, "cuda")) is None
    assert not choice_module.broken
