"""Attention over padded keys whose number only the device knows."""

import logging

import pytest
import torch

from longctx.core.model.attention import causal_attention
from longctx.kernels import choice as choice_module
from longctx.kernels import door, fused_attention

SCALE = 0.125
# H, G, T, S, D, totals
SIZES = [
    (32, 8, 1, 300, 128, (1, 2, 127, 300)),
    (32, 8, 37, 300, 64, (37, 38, 64, 211, 300)),
    (32, 8, 130, 1100, 80, (130, 700, 1029, 1100)),
    (4, 4, 512, 8192, 128, (512, 4128, 8100, 8192)),
]


def states(H, G, T, S, D, total, dtype, device):
    """Queries, padded keys and values that are wild from `total` on, and `total`."""
    generator = torch.Generator().manual_seed(T)
    q = torch.randn(T, H, D, generator=generator).transpose(0, 1)
    k, v = torch.randn(2, S, G, D, generator=generator).unbind()
    k[total:], v[total:] = torch.inf, torch.nan
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
        out = fused_attention.window(q, k, v, SCALE, count)
        k, v = (x[:total].transpose(0, 1) for x in (k, v))
        assert torch.allclose(out, causal_attention(q, k, v, SCALE), atol=1e-6)


def test_where_it_does_not_run_the_caller_is_told(caplog):
    caplog.set_level(logging.INFO, "longctx.kernels.choice")
    for _ in range(2):
        assert attend(*states(4, 2, 3, 20, 64, 9, torch.bfloat16, "cpu")) is None
    assert [record.getMessage() for record in caplog.records] == [
        "window attention: with the number of keys on the host (the tensors are on cpu)"
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "within"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)], ids=str
)
def test_it_is_causal_attention_to_the_keys_in_use(size, dtype, within):
    for total in size[-1]:
        q, k, v, count = states(*size[:-1], total, dtype, "cuda")
        out = attend(q, k, v, count)
        k, v = (x[:total].transpose(0, 1).float() for x in (k, v))
        expected = causal_attention(q.float(), k, v, SCALE)
        assert out is not None
        assert (out.float() - expected).norm() / expected.norm() < within


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "D"), [(torch.float32, 64), (torch.bfloat16, 68)], ids=str)
def test_what_flash_attention_does_not_take(dtype, D):
    assert attend(*states(4, 2, 3, 20, D, 9, dtype, "cuda")) is None
    assert not choice_module.broken
