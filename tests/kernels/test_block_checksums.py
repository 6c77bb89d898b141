"""The kernel that computes checksums, against the library that everybody uses."""

import numpy as np
import pytest
import torch
from xxhash import xxh3_128_digest

from longctx.kernels import door


@pytest.fixture
def kernel(device):
    from longctx.kernels import block_checksums

    return block_checksums


def expected(memory, starts, size):
    """Block after block."""
    data = bytes(memory.tolist())
    blocks = [data[start : start + size] for start in starts]
    return [np.frombuffer(xxh3_128_digest(block), ">i8").tolist() for block in blocks]


def random_bytes(count, device):
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).to(device)


@pytest.mark.parametrize("size", [256, 960, 1024, 1088, 2048, 4096, 7 * 1024 + 448])
@pytest.mark.parametrize("starts", [[], [8], [1024, 0, 16]])
def test_they_are_those_of_the_library(kernel, device, size, starts):
    memory = random_bytes(1024 + size + 5, device)
    found = kernel.block_checksums(memory, starts, size)
    assert found.tolist() == expected(memory, starts, size)
    assert door.block_checksums.definition(memory, starts, size).tolist() == found.tolist()


def test_large_numbers_carry(kernel, device):
    memory = torch.full((2048,), 255, dtype=torch.uint8, device=device)
    assert kernel.block_checksums(memory, [0], 2048).tolist() == expected(memory, [0], 2048)


@pytest.mark.gpu
def test_whole_blocks_of_a_file(kernel, device):
    memory, starts = random_bytes(3 << 20, device), [2 << 20, 0, 1 << 20]
    found = kernel.block_checksums(memory, starts, 1 << 20)
    assert found.tolist() == expected(memory, starts, 1 << 20)


@pytest.mark.parametrize(("start", "size"), [(0, 192), (0, 1000), (4, 1024)])
def test_what_it_does_not_compute_is_refused(kernel, start, size):
    memory = torch.zeros(4096, dtype=torch.uint8)
    assert kernel.refusal(memory, [start], size)
    assert door.block_checksums(memory, [start], size).tolist() == expected(memory, [start], size)
