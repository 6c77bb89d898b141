"""The kernels of the best cosine and of its sliding maximum: the bits of their definitions."""

import pytest
import torch
from sampled import covering

from longctx.kernels import door
from longctx.kernels.quantize import quantize

similarity_max, sliding_max = door.similarity_max.definition, door.sliding_max.definition


@pytest.fixture
def kernel(device):
    from longctx.kernels import similarity_max

    return similarity_max


def embeddings(n, T, heads, D, device):
    """Quantized unit vectors of n tokens and of T question tokens, one of which is zero."""
    generator = torch.Generator().manual_seed(n + T)
    x = torch.nn.functional.normalize(torch.randn(n + T, heads, D, generator=generator), dim=-1)
    x[n // 2] = 0
    vectors, scales = quantize(x)
    given = (vectors[:n], scales[:n], vectors[n:], scales[n:])
    return given, [tensor.to(device) for tensor in given]


GIVEN = [(1, 1, 1), (300, 1, 4), (129, 17, 3), (70, 150, 2)]


@pytest.mark.parametrize(("given", "D"), covering(GIVEN, [64, 80, 96, 128, 256], meet=1), ids=str)
def test_it_is_the_definition_to_the_bit(kernel, device, given, D):
    n, T, heads = given
    given, moved = embeddings(n, T, heads, D, device)
    best = kernel.similarity_max(*moved)
    assert best.dtype == torch.float32
    assert torch.equal(best.cpu(), similarity_max(*given))


def test_extreme_vectors_and_slices(kernel, device):
    vectors = torch.full((40, 3, 128), -127, dtype=torch.int8, device=device)[:, :2]
    scales = torch.full((40, 2), 6e-8, dtype=torch.float16, device=device)  # subnormal
    best = kernel.similarity_max(vectors, scales, vectors[:5], scales[:5])
    expected = similarity_max(
        *(x.cpu() for x in (vectors, scales)), *(x[:5].cpu() for x in (vectors, scales))
    )
    assert torch.equal(best.cpu(), expected)
    assert float(best.min()) > 0


@pytest.mark.parametrize("D", [255, 256, 257, 300])
def test_the_largest_products(kernel, device, D):
    """Up to 256 entries they are counted from a float of 2**23 + 2**22, beyond it converted."""
    vectors = torch.full((20, 1, D), -128, dtype=torch.int8)
    vectors[::2] = 127
    query, scales = vectors[:1], torch.full((20, 1), 0.013, dtype=torch.float16)
    given = (vectors, scales, query, scales[:1])
    expected = similarity_max(*given)
    assert expected.max() > 0 > expected.min()
    assert torch.equal(kernel.similarity_max(*(x.to(device) for x in given)).cpu(), expected)
    given = (vectors, scales, vectors[1:2], scales[:1])
    expected = similarity_max(*given)
    assert torch.equal(kernel.similarity_max(*(x.to(device) for x in given)).cpu(), expected)


def test_no_tokens_and_no_question(kernel, device):
    _, moved = embeddings(3, 2, 2, 64, device)
    vectors, scales, query, query_scales = moved
    assert kernel.similarity_max(vectors[:0], scales[:0], query, query_scales).tolist() == []
    assert "no question" in kernel.refusal(vectors, scales, query[:0], query_scales[:0])
    assert "float32" in kernel.refusal(vectors, scales.float(), query, query_scales)


@pytest.mark.parametrize("n", [1, 7, 130, 1500])
@pytest.mark.parametrize("reach", [0, 1, 3, 4, 31, 32, 64, 600])
def test_the_sliding_maximum(kernel, device, n, reach):
    raw = torch.randn(n, generator=torch.Generator().manual_seed(n)) - 5  # below any zero fill
    expected = sliding_max(raw, reach)
    assert torch.equal(kernel.sliding_max(raw.to(device), reach).cpu(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("T", "heads"), [(20, 4), (200, 3)])
def test_a_real_document(kernel, T, heads):
    given, moved = embeddings(200_001, T, heads, 128, "cuda")
    expected = similarity_max(*given)
    best = kernel.similarity_max(*moved)
    assert torch.equal(best.cpu(), expected)
    assert torch.equal(kernel.sliding_max(best, 64).cpu(), sliding_max(expected, 64))


@pytest.mark.gpu
def test_more_tokens_than_32_bits_address(kernel):
    n = 5_000_000  # 2.56e9 entries
    vectors = torch.zeros(n, 4, 128, dtype=torch.int8, device="cuda")
    vectors[-1] = 1
    scales = torch.ones(n, 4, dtype=torch.float16, device="cuda")
    best = kernel.similarity_max(vectors, scales, vectors[-1:], scales[-1:])
    assert best[-2:].tolist() == [0.0, 128.0]
