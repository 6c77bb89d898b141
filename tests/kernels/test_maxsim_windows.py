"""The kernel of the best cosine in each unit, and its definition: exact values, ragged units."""

from itertools import pairwise, product

import pytest
import torch
from sampled import sampled

from longctx.kernels import door
from longctx.kernels.quantize import quantize
from longctx.kernels.similarity_max_ref import similarity_max

definition = door.maxsim_windows.definition

FILES = (5, 200, 64, 1, 130)  # tokens of documents' files


@pytest.fixture
def kernel(device):
    from longctx.kernels import maxsim_windows

    return maxsim_windows


def embeddings(n, T, heads, D, device="cpu"):
    """Quantized unit vectors of n tokens and of T question tokens, one of which is zero."""
    generator = torch.Generator().manual_seed(n + T)
    x = torch.nn.functional.normalize(torch.randn(n + T, heads, D, generator=generator), dim=-1)
    x[n // 2] = 0
    vectors, scales = quantize(x)
    given = (vectors[:n], scales[:n], vectors[n:], scales[n:])
    return given, [tensor.to(device) for tensor in given]


def units_of(files, first=0):
    """Starts of units of 64 tokens of each file; its last one is short."""
    starts = [first]
    for tokens in files:
        end = starts[-1] + tokens
        while starts[-1] < end:
            starts.append(min(starts[-1] + 64, end))
    return torch.tensor(starts)


def by_hand(vectors, scales, query, query_scales, starts):
    """Each unit and question token by itself, in float64."""
    tokens = vectors.double() * scales.double()[..., None]
    words = query.double() * query_scales.double()[..., None]
    cosines = torch.einsum("nhd,thd->nt", tokens, words) / vectors.shape[1]
    bounds = starts.tolist()
    units = [cosines[a:b].amax(0) for a, b in pairwise(bounds)]
    return torch.stack(units)


# --- the definition ---


@pytest.mark.parametrize(("T", "heads", "D"), [(1, 1, 64), (70, 4, 80), (129, 3, 128)])
@pytest.mark.parametrize("files", [(400,), (2048,), (5000, 3), FILES, (1,) * 90])
def test_the_definition_is_the_best_cosine_of_each_unit(files, T, heads, D):
    given, _ = embeddings(sum(files), T, heads, D)
    starts = units_of(files)
    best = definition(*given, starts)
    assert best.dtype == torch.float32
    assert best.is_contiguous()
    assert torch.allclose(best.double(), by_hand(*given, starts), atol=1e-6, rtol=0)


def test_over_units_and_question_it_is_similarity_max_to_the_bit():
    given, _ = embeddings(3000, 40, 4, 64)
    best = definition(*given, units_of((3000,)))
    raw = similarity_max(*given)
    assert torch.equal(best.amax(1), torch.stack([unit.max() for unit in raw.split(64)]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("files", [(6000,), (700, 3, 64, 2500, 2733)])
def test_a_unit_has_the_same_bits_whatever_is_around_it(files, threads):
    given, _ = embeddings(6000, 20, 4, 64)
    starts, before = units_of(files), torch.get_num_threads()
    whole = definition(*given, starts)
    torch.set_num_threads(threads)
    try:
        for i, j in ((0, 1), (3, 40), (37, len(starts) - 1)):
            part = definition(*given, starts[i : j + 1])
            assert torch.equal(part, whole[i:j])
        assert torch.equal(definition(*given, starts), whole)
    finally:
        torch.set_num_threads(before)


def test_an_empty_unit_is_below_everything_and_one_too_long_is_no_number():
    given, _ = embeddings(300, 3, 2, 64)
    starts = torch.tensor([4, 4, 68, 68, 133, 299, 299])
    best = definition(*given, starts)
    assert (best[[0, 2, 5]] == -torch.inf).all()
    assert best[[3, 4]].isnan().all()
    assert torch.equal(best[1], definition(*given, torch.tensor([4, 68]))[0])


def test_no_units_and_no_question():
    given, _ = embeddings(100, 3, 2, 64)
    assert definition(*given, torch.tensor([7])).shape == (0, 3)
    vectors, scales, query, query_scales = given
    nothing = (vectors, scales, query[:0], query_scales[:0])
    assert definition(*nothing, torch.tensor([0, 60, 100])).shape == (2, 0)
    assert definition(
        vectors[:0], scales[:0], query, query_scales, torch.tensor([0, 0])
    ).tolist() == [[-torch.inf] * 3]


@pytest.mark.parametrize("rows", [1, 50, 64, 100, 1000])
def test_rows_in_shards_of_any_size_give_the_same_bits(rows):
    given, _ = embeddings(sum(FILES) + 7, 5, 3, 64)
    vectors, scales, *question = given
    starts = units_of(FILES, first=3)
    best = torch.full((len(starts) - 1, 5), -torch.inf)
    for first in range(0, len(vectors), rows):
        shard = vectors[first : first + rows], scales[first : first + rows]
        within = (starts - first).clamp(0, len(shard[0]))
        best = torch.maximum(best, door.maxsim_windows(*shard, *question, within))
    assert torch.equal(best, door.maxsim_windows(*given, starts))


# --- the kernel ---


GIVEN = [((1,), 1, 1), ((300,), 1, 4), (FILES, 17, 3), ((70, 3), 150, 2)]


@pytest.mark.parametrize(
    ("given", "D"), sampled(product(GIVEN, [64, 80, 96, 128, 256]), 10), ids=str
)
def test_it_is_the_definition_to_the_bit(kernel, device, given, D):
    files, T, heads = given
    given, moved = embeddings(sum(files) + 12, T, heads, D, device)
    starts = units_of(files, first=5)
    best = kernel.maxsim_windows(*moved, starts.to(device))
    assert best.dtype == torch.float32
    assert torch.equal(best.cpu(), definition(*given, starts))


@pytest.mark.parametrize("D", [320, 1024])
def test_wide_heads(kernel, device, D):
    given, moved = embeddings(150, 20, 2, D, device)
    starts = units_of((150,))
    best = kernel.maxsim_windows(*moved, starts.to(device))
    assert torch.equal(best.cpu(), definition(*given, starts))


def test_empty_units_and_long_ones(kernel, device):
    given, moved = embeddings(300, 3, 2, 64, device)
    starts = torch.tensor([4, 4, 68, 68, 133, 299, 299])
    best = kernel.maxsim_windows(*moved, starts.to(device)).cpu()
    assert torch.equal(best.isnan().all(1), torch.tensor([0, 0, 0, 1, 1, 0]).bool())
    expected = definition(*given, starts)
    assert torch.allclose(best, expected, atol=0, rtol=0, equal_nan=True)


def test_extreme_vectors_and_slices(kernel, device):
    vectors = torch.full((140, 3, 128), -127, dtype=torch.int8, device=device)[:, :2]
    scales = torch.full((140, 2), 6e-8, dtype=torch.float16, device=device)  # subnormal
    given = (vectors, scales, vectors[:5], scales[:5])
    starts = units_of((140,))
    best = kernel.maxsim_windows(*given, starts.to(device)).cpu()
    assert torch.equal(best, definition(*(x.cpu() for x in given), starts))
    assert float(best.min()) > 0


def test_what_it_does_not_take(kernel, device):
    _, (vectors, scales, query, query_scales) = embeddings(70, 2, 2, 64, device)
    starts = torch.tensor([0, 64, 70], device=device)
    given = (vectors, scales, query, query_scales)
    assert kernel.refusal(*given, starts) is None
    assert "int32" in kernel.refusal(*given, starts.int())
    assert "no question" in kernel.refusal(vectors, scales, query[:0], query_scales[:0], starts)
    assert "float32" in kernel.refusal(vectors, scales.float(), query, query_scales, starts)
    assert kernel.maxsim_windows(*given, starts[:1]).shape == (0, 2)


@pytest.mark.gpu
@pytest.mark.parametrize(("T", "heads"), [(1, 4), (20, 4), (64, 4), (200, 3)])
@pytest.mark.parametrize("files", [(200_001,), (3000, 17, 64, 1) * 60])
def test_a_real_document(kernel, files, T, heads):
    given, moved = embeddings(sum(files), T, heads, 128, "cuda")
    starts = units_of(files)
    best = kernel.maxsim_windows(*moved, starts.cuda())
    assert torch.equal(best.cpu(), definition(*given, starts))


@pytest.mark.gpu
def test_more_tokens_than_32_bits_address(kernel):
    n = 5_000_000  # 2.56e9 entries
    vectors = torch.zeros(n, 4, 128, dtype=torch.int8, device="cuda")
    vectors[-1] = 1
    scales = torch.ones(n, 4, dtype=torch.float16, device="cuda")
    starts = torch.arange(0, n + 64, 64, device="cuda").clamp_(max=n)
    best = kernel.maxsim_windows(vectors, scales, vectors[-1:], scales[-1:], starts)
    assert best[-2:].tolist() == [[0.0], [128.0]]
