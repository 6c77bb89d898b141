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
    numbers = torch.arange(C + T).expand(G, -1), torch.rand(G, C + T, generator=generator)
    rows = keys, values, new[:G], new[G:]
    return *rows, *(x.to(device) for x in (*numbers, torch.stack(chosen)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_those_of_the_definition_and_of_a_loop(kernel, device, size, dtype):
    arguments = given(size, device, dtype)
    assert kernel.refusal(*arguments) is None
    keys, values, new_keys, new_values, _, mass, index = arguments
    expected = door.kept_rows.definition(*arguments)
    for found, other in zip(kernel.kept_rows(*arguments), expected, strict=True):
        assert torch.equal(found, other)
    assert torch.equal(expected.positions, index)
    for g, rows in enumerate(index.tolist()):
        assert expected.mass[g].tolist() == [mass[g, row].item() for row in rows]
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


@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 0), (0, 5), (2, 9), (18, 1)])
def test_a_part_of_a_matrix_and_its_edges(kernel, device, first, last):
    mass = torch.rand(4, 50, generator=torch.Generator().manual_seed(1)).to(device)[:, 5:-3]
    found = kernel.heaviest_tokens(mass, 20, first, last)
    assert torch.equal(found, door.heaviest_tokens.definition(mass, 20, first, last))
    edges = {*range(first), *range(42 - last, 42)}
    for head, chosen in zip(mass.tolist(), found.tolist(), strict=True):
        others = sorted(set(range(42)) - edges, key=lambda token: -head[token])
        assert chosen == sorted(edges | {*others[: 20 - len(edges)]})


def test_what_they_refuse(kernel, device):
    keys, values, new_keys, new_values, places, mass, index = given(SIZES[0], device)
    rest = places, mass, index
    assert "alike" in kernel.refusal(keys, values.half(), new_keys, new_values, *rest)
    assert "alike" in kernel.refusal(keys, values[..., :4], new_keys, new_values[..., :4], *rest)
    rows = keys, values, new_keys, new_values
    assert "int64" in kernel.refusal(*rows, places, mass, index.int())
    assert "empty" in kernel.refusal(*rows, places, mass, index[:, :0])
    assert "rows" in kernel.refusal(*rows, places.mT.contiguous().mT, mass, index)
    assert "rows" in kernel.refusal(*rows, places, mass.mT.contiguous().mT, index)
    assert "rows" in kernel.refusal(keys, values, new_keys.mT.contiguous().mT, new_values, *rest)
    mass = torch.rand(2, 9, device=device)
    assert "float64" in kernel.heaviest_tokens_refusal(mass.double(), 3)
    assert "no 9 of 9" in kernel.heaviest_tokens_refusal(mass, 9)
    assert "no 0 of 9" in kernel.heaviest_tokens_refusal(mass, 0)
    assert "no 0 of 6" in kernel.heaviest_tokens_refusal(mass, 3, 2, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [8192, 32768])
def test_real_sizes(kernel, size):
    arguments = given((8, size, size, 128, size), "cuda", torch.bfloat16)
    expected = door.kept_rows.definition(*arguments)
    for found, other in zip(kernel.kept_rows(*arguments), expected, strict=True):
        assert torch.equal(found, other)
    mass = torch.rand(8, 2 * size, device="cuda").pow(8)
    found = kernel.heaviest_tokens(mass, size, 256, 256)
    assert torch.equal(found, door.heaviest_tokens.definition(mass, size, 256, 256))
