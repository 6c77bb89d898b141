"""The kernel that finds the best spans of a block, against their definition."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.span_boxes.definition

SIZES = [(1, 1), (3, 2), (2, 7), (4, 31), (1, 32), (2, 53)]  # B, N


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import span_boxes

    monkeypatch.setattr(span_boxes, "TILE", 256)  # several parts of a block
    return span_boxes


def attention(B, N, dtype, device):
    """Attention of 4 heads, summed, and thresholds of these blocks."""
    generator = torch.Generator().manual_seed(N)
    maps = (torch.randn(B, 4, N, N, generator=generator) * 2).softmax(-1).sum(1)
    thresholds = torch.rand(B, generator=generator) * 0.2
    return maps.to(device, dtype), thresholds.to(device)


def integers(B, N, dtype, device):
    """Maps whose sums are exact in any order, and many of them equal."""
    generator = torch.Generator().manual_seed(N)
    maps = torch.randint(-1, 3, (B, N, N), generator=generator)
    return maps.to(device, dtype), torch.randint(0, 2, (B,), generator=generator).to(device, dtype)


def plain(summed, threshold):
    """Scores, x and y, (B, 2N-1), span after span by its double sum in float64."""
    B, N, _ = summed.shape
    found = torch.full((B, 2 * N - 1, 3), -torch.inf, dtype=torch.float64)
    for b in range(B):
        lowered = summed[b].double().cpu() - float(threshold[b])
        for x in range(N):
            for y in range(x, N):
                score = lowered[x : y + 1, x : y + 1].tril().sum()
                if score > found[b, x + y, 0]:  # the earlier x stays where they are equal
                    found[b, x + y] = torch.tensor([score, x, y])
    return found


def result(module, given):
    assert module.refusal(*given) is None
    return module.span_boxes(*given)


def same(got, expected):
    return all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    ("size", "dtype"), covering(SIZES, [torch.float32, torch.float16], meet=1), ids=str
)
def test_equal_scores_too_it_is_the_definition(kernel, device, size, dtype):
    given = integers(*size, dtype, device)
    expected = plain(*given)
    for got in (result(kernel, given), reference(*given)):
        assert torch.equal(torch.stack([x.double().cpu() for x in got], dim=2), expected)
        assert got.score.dtype == torch.float32
        assert got.x.dtype == got.y.dtype == torch.int64


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention(kernel, device, size):
    given = attention(*size, torch.float32, device)
    expected = plain(*given)
    for got in (result(kernel, given), reference(*given)):
        assert torch.allclose(got.score.double().cpu(), expected[..., 0], atol=1e-4)
        assert torch.equal(got.x.double().cpu(), expected[..., 1])  # no scores are that near


def test_in_float64_the_definition_stays_there(kernel):
    given = attention(2, 9, torch.float64, "cpu")
    assert reference(*given).score.dtype == torch.float64
    assert "float64" in kernel.refusal(*given)


def test_what_is_above_the_diagonal_does_not_count(kernel, device):
    summed, threshold = integers(2, 20, torch.float32, device)
    expected = result(kernel, (summed, threshold))
    other = summed.masked_fill(torch.ones(20, 20, device=device).triu(1).bool(), torch.nan)
    assert same(result(kernel, (other, threshold)), expected)


def test_maps_of_other_strides(kernel, device):
    summed, threshold = integers(3, 20, torch.float32, device)
    expected = result(kernel, (summed, threshold))
    turned = summed.mT.contiguous().mT
    assert same(result(kernel, (turned, threshold)), expected)
    wider = torch.zeros(5, 30, 40, device=device)
    wider[1:4, 3:23, 9:29] = summed
    assert same(result(kernel, (wider[1:4, 3:23, 9:29], threshold)), expected)


def test_what_it_refuses(kernel, device):
    summed, threshold = integers(2, 3, torch.float32, device)
    assert kernel.refusal(summed.half(), threshold) is None
    assert "int64 map" in kernel.refusal(summed.long(), threshold)
    assert "float64 threshold" in kernel.refusal(summed, threshold.double())
    assert "(1, 1025, 1025)" in kernel.refusal(summed[:1, :1, :1].expand(1, 1025, 1025), threshold)
    assert "(0, 3, 3)" in kernel.refusal(summed[:0], threshold[:0])


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    given = integers(2, 20, torch.float32, device)
    assert same(door.span_boxes(*given), reference(*given))


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("N", [1, 17, 127, 128, 129, 1000])
def test_real_sizes(dtype, N):
    from longctx.kernels import span_boxes

    given = integers(5, N, dtype, "cuda")
    got = result(span_boxes, given)
    assert same(got, reference(*given))
    again = attention(5, N, dtype, "cuda")
    got, expected = result(span_boxes, again), reference(*again)
    assert torch.allclose(got.score, expected.score, rtol=1e-4, atol=1e-2)
    assert same(result(span_boxes, again), got)
