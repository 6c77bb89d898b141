"""Products with the rows of an index that are narrower than what they are multiplied with."""

import pytest
import torch

from longctx.core.kv import block_vectors
from longctx.core.kv.block_vectors import best_blocks, most_shared, products, run_means, shares


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [1, 128, 300])  # parts of 128 rows, and what is left of them
def test_rows_multiplied_in_parts_give_what_all_of_them_give(monkeypatch, dtype, rows):
    monkeypatch.setattr(block_vectors, "WIDENED", 130 * 24)
    generator = torch.Generator().manual_seed(rows)
    index = torch.randn(rows, 24, generator=generator).to(dtype)
    query = torch.randn(24, generator=generator)
    found, expected = products(index, query), index.double() @ query.double()
    assert (found.dtype, found.shape) == (torch.float32, (rows,))
    assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [3, 1999, 2000])
def test_of_equal_blocks_the_earlier_are_best(dtype, rows):
    """Of the shapes of Qwen2.5-1.5B, where parts of 682 rows were summed in two ways."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        vectors = torch.randn(1, 12, 128, generator=generator).to(dtype).expand(rows, -1, -1)
        q = torch.randn(12, 5, 128, generator=generator).to(dtype)
        assert best_blocks(q, vectors, 4).tolist() == [0, 1, 2, 3][:rows]


def test_a_query_is_not_rounded_to_the_dtype_of_the_index():
    q = torch.tensor([[[1.0], [1.0078125]]], dtype=torch.bfloat16)  # their mean is no bfloat16
    vectors = torch.tensor([[[256.0]], [[255.0]]], dtype=torch.bfloat16)
    assert products(vectors.flatten(1), q.float().mean(1)[0]).tolist() == [257.0, 255.99609375]
    assert best_blocks(q, vectors, 1).tolist() == [0]


def test_a_row_longer_than_a_part_is_taken_whole(monkeypatch):
    monkeypatch.setattr(block_vectors, "WIDENED", 3)
    index = torch.arange(10.0).view(2, 5).half()
    assert products(index, torch.ones(5)).tolist() == [10.0, 35.0]
    assert products(index[:0], torch.ones(5)).tolist() == []


def test_means_of_runs_by_hand():
    keys = torch.arange(12.0).reshape(1, 6, 2, 1)  # token n: head 0 has 2 n, head 1 has 2 n + 1
    found = run_means(keys, 3)
    assert found.shape == (1, 2, 2, 1)
    assert found[0, :, :, 0].tolist() == [[2, 3], [8, 9]]


def test_shares_by_hand():
    """One head, two queries: the first sees run 0 alone, the second sees all alike."""
    q = torch.tensor([[[100.0], [0.0]]])
    means = torch.tensor([[[[1.0]], [[-1.0]]], [[[-1.0]], [[-1.0]]]])  # two blocks of two runs
    assert shares(q, means, 1.0).tolist() == [1 + 1 / 2, 1 / 2]
    assert most_shared(q, means, 1.0, 1).tolist() == [0]


def test_logits_in_parts_are_those_of_all_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, means = (torch.randn(4, 9, 8, generator=generator), torch.randn(5, 3, 2, 8))
    expected = shares(q, means, 0.3)
    monkeypatch.setattr(block_vectors, "LOGITS", 31)
    assert torch.allclose(shares(q, means, 0.3), expected, atol=1e-5)
    assert expected.sum().item() == pytest.approx(4 * 9, rel=1e-5)


def test_of_a_long_chunk_means_of_queries_ask(monkeypatch):
    monkeypatch.setattr(block_vectors, "QUERIES", 2)
    q = torch.tensor([[[2.0], [4.0], [9.0]]])  # (2 + 4) / 2, 9
    means = torch.tensor([[[[1.0]]], [[[0.0]]]])
    expected = torch.sigmoid(torch.tensor([3.0, 9.0])).sum()
    assert shares(q, means, 1.0)[0].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_of_equal_blocks_the_earlier_share_most(dtype):
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(1, 4, 3, 64, generator=generator).to(dtype).expand(700, -1, -1, -1)
    q = torch.randn(9, 5, 64, generator=generator).to(dtype)
    assert most_shared(q, means, 0.125, 4).tolist() == [0, 1, 2, 3]
