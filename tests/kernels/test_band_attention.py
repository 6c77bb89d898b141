"""The kernel of windows, soft caps and sinks against one masked softmax in float64."""

import pytest
import torch
from sampled import covering

from longctx.kernels import door

SIZES = [  # H, G, T, S, D
    (4, 2, 40, 133, 64),
    (2, 1, 70, 70, 80),
    (2, 2, 16, 200, 24),
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import band_attention

    return band_attention


def given(size, dtype, device):
    H, G, T, S, D = size
    generator = torch.Generator().manual_seed(S)
    qkv = torch.randn(S, H + 2 * G, D, generator=generator).to(device, dtype).transpose(0, 1)
    return qkv[:H, -T:], qkv[H : H + G], qkv[H + G :], D**-0.5 * 3


def truth(q, k, v, scale, window, softcap=None, sinks=None):
    """Output and log-sum-exps, in float64."""
    (H, T, _), (G, S, _) = q.shape, k.shape
    k, v = (x.double().repeat_interleave(H // G, 0) for x in (k, v))
    logits = q.double() @ k.mT * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    apart = torch.arange(S - T, S)[:, None] - torch.arange(S)
    inside = ((apart >= 0) & (apart < window)).to(q.device)
    logits = logits.masked_fill(~inside, -torch.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(-1, T, 1)
        logits = torch.cat([logits, column], dim=-1)
    return torch.softmax(logits, -1)[..., :S] @ v, logits.logsumexp(-1)


@pytest.mark.parametrize(
    ("size", "window", "softcap", "sinks"),
    covering(SIZES, [1, 30, 64, 1000], [None, 2.0], [False, True]),
    ids=str,
)
def test_it_is_one_masked_softmax(kernel, device, size, window, softcap, sinks):
    q, k, v, scale = given(size, torch.float32, device)
    window = min(window, size[3])
    more = softcap, torch.linspace(-2, 3, size[0]).to(device) if sinks else None
    assert kernel.refusal(q, k, v, scale, window, *more) is None
    out, lse = kernel.band_attention(q, k, v, scale, window, *more)
    expected, sums = truth(q, k, v, scale, window, *more)
    assert (out - expected).abs().max() < 1e-5
    assert (lse - sums).abs().max() < 1e-5
    defined, none = door.band_attention.definition(q, k, v, scale, window, *more)
    assert (defined - expected).abs().max() < 1e-5
    assert none is None


def test_half_precision(kernel, device):
    q, k, v, scale = given(SIZES[0], torch.float16, device)
    out, _ = kernel.band_attention(q, k, v, scale, 50, 2.0)
    expected, _ = truth(q, k, v, scale, 50, 2.0)
    assert (out - expected).norm() / expected.norm() < 2e-3


def test_what_it_refuses(kernel, device):
    q, k, v, scale = given(SIZES[0], torch.float32, device)
    assert "float64" in kernel.refusal(q.double(), k, v, scale, 9)
    assert "float16 keys" in kernel.refusal(q, k.half(), v, scale, 9)
    assert "15 queries" in kernel.refusal(q[:, :15], k, v, scale, 9)
    assert "257" in kernel.refusal(*(torch.zeros(1, 20, 257) for _ in range(3)), scale, 9)
    assert "contiguous" in kernel.refusal(q.mT.contiguous().mT, k, v, scale, 9)
    narrow = [x.bfloat16() for x in (q, k, v)]
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(*narrow, scale, 9)))


@pytest.mark.gpu
@pytest.mark.parametrize("window", [128, 4096, 9000])
@pytest.mark.parametrize(
    ("D", "dtype", "softcap", "sinks"),
    [
        (256, torch.bfloat16, 50.0, False),
        (64, torch.bfloat16, None, True),
        (128, torch.bfloat16, None, False),
        (96, torch.float16, 30.0, True),
    ],
)
def test_real_chunks(kernel, dtype, D, window, softcap, sinks):
    q, k, v, scale = given((8, 4, 2048, 9000, D), dtype, "cuda")
    more = softcap, torch.linspace(-2, 3, 8).to("cuda") if sinks else None
    out, lse = kernel.band_attention(q, k, v, scale, window, *more)
    expected, sums = truth(q, k, v, scale, window, *more)
    assert (out - expected).norm() / expected.norm() < 1e-2
    assert (lse - sums).abs().max() < 1e-2
