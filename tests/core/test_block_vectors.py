"""Products with the rows of an index that are narrower than what they are multiplied with."""

import pytest
import torch

from longctx.core import block_vectors
from longctx.core.block_vectors import best_blocks, products


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 4, 13, 64])  # parts of four rows, and what is left of them
def test_rows_widened_in_parts_give_what_all_of_them_give(monkeypatch, dtype, rows):
    monkeypatch.setattr(block_vectors, "WIDENED", 4 * 24 + 5)
    generator = torch.Generator().manual_seed(rows)
    index = torch.randn(rows, 24, generator=generator).to(dtype)
    query = torch.randn(24, generator=generator)
    found, expected = products(index, query), index.double() @ query.double()
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 1e-5


def test_a_query_is_not_rounded_to_the_dtype_of_the_index():
    q = torch.tensor([[[1.0], [1.0078125]]], dtype=torch.bfloat16)  # their mean is no bfloat16
    vectors = torch.tensor([[[256.0]], [[255.0]]], dtype=torch.bfloat16)
    assert products(vectors.flatten(1), q.float().mean(1)[0]).tolist() == [257.0, 255.99609375]
    assert best_blocks(q, vectors, 1).tolist() == [0]


def test_a_row_longer_than_a_part_is_taken_whole(monkeypatch):
    monkeypatch.setattr(block_vectors, "WIDENED", 3)
    index = torch.arange(10.0).view(2, 5).half()
    assert products(index, torch.ones(5)).tolist() == [10.0, 35.0]
