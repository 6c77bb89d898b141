"""The kernel that gathers rows from blocks in host memory, against its definition."""

import pytest
import torch

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.gather_rows.definition

# rows of a block, blocks, rows in them, rows of the tail, G, D
SIZES = [
    (16, 3, 48, 5, 2, 64),
    (7, 4, 25, 11, 3, 80),  # the last block is part full, B is no power of two
    (8, 1, 8, 1, 1, 40),
    (64, 2, 128, 0, 8, 16),  # no tail
    (4, 0, 0, 9, 2, 8),  # no blocks
    (5, 3, 13, 4, 1, 3),  # rows of odd bytes
]
KINDS = [  # of the blocks, of the tail
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float16),
    (torch.int8, torch.float16),
    (torch.int8, torch.float32),
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import gather_rows

    return gather_rows


def pointers(tensors, device):
    return torch.tensor([x.data_ptr() for x in tensors], dtype=torch.int64, device=device)


def stored(size, kind, dtype, device="cpu"):
    """Arguments of the kernel: pinned blocks where there is a GPU, rows in every order."""
    B, count, start, n, G, D = size
    generator = torch.Generator().manual_seed(start + D)
    pin = device == "cuda"
    blocks = [torch.randn(B, G, D, generator=generator) * 40 for _ in range(count)]
    blocks = [block.to(kind) for block in blocks]
    blocks = [block.pin_memory() if pin else block for block in blocks]
    tail = torch.randn(n, G, D, generator=generator).to(device, dtype)
    index = torch.randint(0, start + n, (3 * (start + n) // 2,), generator=generator).to(device)
    scales = scale_table = None
    if kind == torch.int8:
        scales = [torch.rand(B, G, generator=generator).half() for _ in range(count)]
        scales = [scale.pin_memory() if pin else scale for scale in scales]
        scale_table = pointers(scales, device)
    return blocks, pointers(blocks, device), tail, start, index, scales, scale_table


def plainly(blocks, table, tail, start, index, scales, scale_table):
    """Row after row."""
    rows = []
    for r in index.tolist():
        if r >= start:
            rows.append(tail[r - start])
            continue
        b, i = divmod(r, len(blocks[0]))
        row = blocks[b][i]
        row = row if scales is None else row.float() * scales[b][i].float()[:, None]
        rows.append(row.to(tail.device, tail.dtype))
    return torch.stack(rows)


def gathered(module, given):
    assert module.refusal(*given) is None
    return module.gather_rows(*given)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_it_is_the_definition(kernel, device, size, kinds):
    given = stored(size, *kinds, device)
    expected = plainly(*given)
    assert torch.equal(reference(*given), expected)
    assert torch.equal(gathered(kernel, given), expected)


@pytest.mark.parametrize("far", [1, 1 << 40])
def test_rows_that_are_not_there_are_clamped(kernel, device, far):
    blocks, table, tail, start, _, *_ = stored(SIZES[1], torch.float16, torch.float16, device)
    end = start + len(tail)
    index = torch.tensor([-far, 3, end - 1 + far, start], device=device)
    found = kernel.gather_rows(blocks, table, tail, start, index)
    near = kernel.gather_rows(blocks, table, tail, start, index.clamp(0, end - 1))
    assert torch.equal(found, near)
    assert torch.equal(found, reference(blocks, table, tail, start, index))


def test_nothing_selected(kernel, device):
    blocks, table, tail, start, index, *_ = stored(SIZES[0], torch.float16, torch.float16, device)
    assert kernel.gather_rows(blocks, table, tail, start, index[:0]).shape == (0, 2, 64)


def test_part_of_a_buffer_as_the_tail(kernel, device):
    blocks, table, tail, start, index, *_ = stored(SIZES[0], torch.float16, torch.float16, device)
    wide = torch.cat([tail, tail + 1], dim=-1)
    part = wide[..., :64]
    assert not part.is_contiguous()
    assert torch.equal(
        kernel.gather_rows(blocks, table, part, start, index),
        reference(blocks, table, tail, start, index),
    )


def test_what_it_refuses(kernel, device):
    blocks, table, tail, start, index, *_ = stored(SIZES[0], torch.float16, torch.float16, device)
    assert kernel.refusal(blocks, table, tail, start, index) is None
    assert "float64" in kernel.refusal(blocks, table, tail.double(), start, index)
    assert "int8" in kernel.refusal(blocks, table, tail.to(torch.int8), start, index)
    assert "without scales" in kernel.refusal(
        [x.to(torch.int8) for x in blocks], table, tail, start, index
    )
    assert "with scales" in kernel.refusal(
        blocks, table, tail, start, index, [x[..., 0] for x in blocks]
    )
    assert "int32" in kernel.refusal(blocks, table, tail, start, index.int())
    assert "contiguous" in kernel.refusal(
        [x.transpose(0, 1) for x in blocks], table, tail, start, index
    )


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    given = stored(SIZES[1], torch.int8, torch.float16, device)
    assert torch.equal(door.gather_rows(*given), plainly(*given))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.int8], ids=str)
def test_real_rows_from_pinned_memory(kernel, kind):
    given = stored((1024, 9, 9000, 700, 8, 128), kind, torch.bfloat16, "cuda")
    assert torch.equal(gathered(kernel, given), reference(*given))


@pytest.mark.gpu
def test_host_memory_that_is_not_pinned_is_refused(kernel):
    blocks, table, tail, start, index, *_ = stored(SIZES[0], torch.bfloat16, torch.bfloat16, "cuda")
    assert kernel.refusal(blocks, table, tail, start, index) is None
    assert "not pinned" in kernel.refusal(
        [block.clone() for block in blocks], table, tail, start, index
    )
