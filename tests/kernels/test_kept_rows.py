"""The kernels of eviction against their definitions."""

import pytest
import torch
from sampled import covering

from longctx.kernels import door

SIZES = [
    (2, 20, 13, 8, 17),
    (1, 0, 9, 80, 9),
    (3, 40, 1, 5, 1),
    (2, 64, 64, 16, 70),
]  # G, C, T, D, n


@pytest.fixture
def kernel(device):
    from longctx.kernels import kept_rows

    return kept_rows


def given(size, device, dtype=torch.float32):
    G, C, T, D, n = size
    generator = torch.Generator().manual_seed(C + T)
    keys, values = torch.randn(2, G, C, D, generator=generator).to(device, dtype).unbind()
    new = torch.randn(T, 2 * G, D, generator=generator).to(device, dtype).transpose(0, 1)
    chosen = [torch.randperm(C + T, generator=generator)[:n].sort().values for _ in range(G)]
    return keys, values, new[:G], new[G:], torch.stack(chosen).to(device)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_those_of_the_definition_and_of_a_loop(kernel, device, size, dtype):
    arguments = given(size, device, dtype)
    assert kernel.refusal(*arguments) is None
    keys, values, new_keys, new_values, index = arguments
    expected = door.kept_rows.definition(*arguments)
    for found, other in zip(kernel.kept_rows(*arguments), expected, strict=True):
        assert torch.equal(found, other)
    for g, rows in enumerate(index.tolist()):
        for place, row in enumerate(rows):
            C = keys.shape[1]
            assert torch.equal(
                expected[0][g, place], keys[g, row] if row < C else new_keys[g, row - C]
            )
            assert torch.equal(
                expected[1][g, place], values[g, row] if row < C else new_values[g, row - C]
            )


@pytest.mark.parametrize(
    ("S", "share", "levels"), covering([2, 100, 1000], [0.1, 0.5, 0.99], [3, 1 << 30])
)
def test_the_heaviest_are_those_of_the_definition(kernel, device, S, share, levels):
    generator = torch.Generator().manual_seed(S)
    mass = torch.randint(-levels, levels, (3, S), generator=generator).float().to(device)
    count = max(1, int(S * share))
    assert kernel.heaviest_tokens_refusal(mass, count) is None
    found = kernel.heaviest_tokens(mass, count)
    assert torch.equal(found, door.heaviest_tokens.definition(mass, count))
    for head, chosen in zip(mass.tolist(), found.tolist(), strict=True):
        ranked = sorted(range(S), key=lambda token: (-head[token], token))
        assert chosen == sorted(ranked[:count])


def test_a_part_of_a_matrix(kernel, device):
    mass = torch.rand(4, 50, generator=torch.Generator().manual_seed(1)).to(device)[:, 5:-3]
    expected = door.heaviest_tokens.definition(mass, 20)
    assert torch.equal(kernel.heaviest_tokens(mass, 20), expected)


def test_what_they_refuse(kernel, device):
    keys, values, new_keys, new_values, index = given(SIZES[0], device)
    assert "alike" in kernel.refusal(keys, values.half(), new_keys, new_values, index)
    assert "alike" in kernel.refusal(keys, values[..., :4], new_keys, new_values[..., :4], index)
    assert "int64" in kernel.refusal(keys, values, new_keys, new_values, index.int())
    assert "empty" in kernel.refusal(keys, values, new_keys, new_values, index[:, :0])
    assert "rows" in kernel.refusal(keys, values, new_keys.mT.contiguous().mT, new_values, index)
    mass = torch.rand(2, 9, device=device)
    assert "float64" in kernel.heaviest_tokens_refusal(mass.double(), 3)
    assert "no 9 of 9" in kernel.heaviest_tokens_refusal(mass, 9)
    assert "no 0 of 9" in kernel.heaviest_tokens_refusal(mass, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [8192, 32768])
def test_real_sizes(kernel, size):
    arguments = given((8, size, size, 128, size), "cuda", torch.bfloat16)
    expected = door.kept_rows.definition(*arguments)
    for found, other in zip(kernel.kept_rows(*arguments), expected, strict=True):
        assert torch.equal(found, other)
    mass = torch.rand(8, 2 * size - 512, device="cuda").pow(8)
    found = kernel.heaviest_tokens(mass, size - 512)
    assert torch.equal(found, door.heaviest_tokens.definition(mass, size - 512))
