"""Attention after a cache, and the mass that keys receive, against their definitions."""

import pytest
import torch
from torch import Tensor

from longctx.core.model import attention
from longctx.core.model.attention import causal_attention
from longctx.kernels import band_attention_ref
from longctx.kernels.attention_mass_ref import attention_mass

SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
VARIANTS = pytest.mark.parametrize(
    ("softcap", "sinks"),
    [(None, None), (0.7, None), (None, SINKS), (0.7, SINKS)],
    ids=["plain", "soft cap", "sinks", "both"],
)


def softmax_weights(q: Tensor, k: Tensor, scale: float, window: int, softcap, sinks) -> Tensor:
    """(H, T, S): one masked softmax for each query, the sink among its logits."""
    (H, T, _), (G, S, _) = q.shape, k.shape
    position = torch.arange(S)
    apart = position[S - T :, None] - position[None]
    logits = q @ k.repeat_interleave(H // G, 0).mT * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    exp = logits.exp() * ((apart >= 0) & (apart < window))
    extra = 0 if sinks is None else sinks.exp()[:, None, None]
    return exp / (exp.sum(dim=-1, keepdim=True) + extra)


def drawn(T: int, S: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    q = torch.randn(4, T, 8, dtype=dtype, generator=generator)
    k, v = torch.randn(2, 2, S, 8, dtype=dtype, generator=generator).unbind()
    return q, k, v


def test_gqa_map_gives_query_head_h_the_kv_head_of_its_group():
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(6, 5, 8, generator=generator)
    k, v = torch.randn(2, 2, 9, 8, generator=generator).unbind()
    out = causal_attention(q, k, v, scale=0.4)
    for h in range(6):
        for t in range(5):
            seen = 9 - 5 + t + 1
            weights = torch.softmax(0.4 * k[h // 3, :seen] @ q[h, t], dim=0)
            assert torch.allclose(out[h, t], weights @ v[h // 3, :seen], atol=1e-6)


@VARIANTS
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("window", [None, 4, 100])
@pytest.mark.parametrize("T", [1, 3, 12])
def test_attention_after_a_cache_equals_one_softmax(T, window, fused, softcap, sinks, monkeypatch):
    if not fused:
        monkeypatch.setattr(attention, "fused_attention", lambda *_, **__: None)
    q, k, v = drawn(T, 12)
    weights = softmax_weights(q, k, 0.3, window or 12, softcap, sinks)
    out = causal_attention(q, k, v, 0.3, window, softcap, sinks)
    assert torch.allclose(out, weights @ v.repeat_interleave(2, 0), atol=1e-12)


@VARIANTS
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("logits", [1, 200, 1000])
def test_attention_does_not_depend_on_how_queries_are_cut(
    window, logits, softcap, sinks, monkeypatch
):
    q, k, v = drawn(23, 40)
    whole = causal_attention(q, k, v, 0.3, window, softcap, sinks)
    monkeypatch.setattr(band_attention_ref, "BLOCK_LOGITS", logits)
    cut = causal_attention(q, k, v, 0.3, window, softcap, sinks)
    assert torch.allclose(cut, whole, atol=1e-12)


@VARIANTS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types_are_as_near_as_their_digits(dtype, softcap, sinks):
    q, k, v = (x.to(dtype) for x in drawn(9, 30))
    sinks = None if sinks is None else sinks.to(dtype)
    given = [x.double() for x in (q, k, v)]
    wide_sinks = None if sinks is None else sinks.double()
    expected = causal_attention(*given, 0.3, None, softcap, wide_sinks)
    out = causal_attention(q, k, v, 0.3, None, softcap, sinks)
    assert out.dtype == dtype
    assert (out.double() - expected).abs().max() < (1e-5 if dtype == torch.float32 else 3e-2)


@VARIANTS
def test_mass_is_the_attention_that_each_key_receives(softcap, sinks):
    q, k, _ = drawn(5, 12)
    expected = softmax_weights(q, k, 0.3, 12, softcap, sinks).sum(dim=1)  # (H, S)
    expected = expected.view(2, 2, 12).sum(dim=1)  # heads 0, 1 read key head 0; heads 2, 3 read 1
    mass = attention_mass(q, k, 0.3, softcap=softcap, sinks=sinks)
    assert torch.allclose(mass, expected, atol=1e-12)
    if sinks is None:
        assert torch.allclose(mass.sum(dim=1), torch.full((2,), 10.0, dtype=torch.float64))
