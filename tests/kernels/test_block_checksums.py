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


def expected(image, first, size, count):
    """Block after block."""
    data = image[first:].tolist()
    blocks = [bytes(data[size * n : size * (n + 1)]) for n in range(count)]
    return [np.frombuffer(xxh3_128_digest(block), ">i8").tolist() for block in blocks]


@pytest.mark.parametrize("size", [256, 960, 1024, 1088, 2048, 4096, 7 * 1024 + 448])
@pytest.mark.parametrize("count", [0, 3])
def test_they_are_those_of_the_library(kernel, device, size, count):
    generator = torch.Generator().manual_seed(size)
    shape = (8 + size * count + 5,)
    image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).to(device)
    found = kernel.block_checksums(image, 8, size, count)
    assert found.tolist() == expected(image, 8, size, count)
    assert door.block_checksums.definition(image, 8, size, count).tolist() == found.tolist()


def test_large_numbers_carry(kernel, device):
    image = torch.full((2048,), 255, dtype=torch.uint8, device=device)
    assert kernel.block_checksums(image, 0, 1024, 2).tolist() == expected(image, 0, 1024, 2)


@pytest.mark.gpu
def test_whole_blocks_of_a_file(kernel, device):
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (3 << 20,), dtype=torch.uint8, generator=generator).to(device)
    assert kernel.block_checksums(image, 0, 1 << 20, 3).tolist() == expected(image, 0, 1 << 20, 3)


@pytest.mark.parametrize(("first", "size"), [(0, 192), (0, 1000), (4, 1024)])
def test_what_it_does_not_compute_is_refused(kernel, first, size):
    image = torch.zeros(4096, dtype=torch.uint8)
    assert kernel.refusal(image, first, size, 1)
    assert door.block_checksums(image, first, size, 1).tolist() == expected(image, first, size, 1)
