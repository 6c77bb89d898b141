"""The kernel that rotates cache and chunk against its definition, and that against one rotation."""

import pytest
import torch

from longctx.kernels import door
from longctx.kernels.selected_attention_ref import rotate_half

reference = door.rotated_chunk.definition
SIZES = [  # H, G, T, C, D, rotated dimensions
    (4, 2, 33, 50, 64, 64),
    (3, 1, 7, 0, 80, 40),
    (2, 2, 1, 90, 24, 10),
    (4, 4, 20, 11, 128, 0),
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import rotated_chunk

    return rotated_chunk


def given(size, dtype, device):
    H, G, T, C, D, R = size
    generator = torch.Generator().manual_seed(T + C)
    # As a projection gives them: one token's heads beside one another.
    qkv = torch.randn(T, H + 2 * G, D, generator=generator).to(device, dtype).transpose(0, 1)
    cached = torch.randn(G, C, D, generator=generator).to(device, dtype)
    angles = torch.arange(C + T + 3)[:, None] * 100.0 ** -torch.linspace(0, 1, R // 2)
    angles = torch.cat([angles, angles], dim=-1)
    tables = (((x * 1.2).to(device, dtype)) if R else None for x in (angles.cos(), angles.sin()))
    return qkv[:H], qkv[H : H + G], cached, *tables


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_it_is_the_definition_to_the_bit(kernel, device, size, dtype):
    arguments = given(size, dtype, device)
    assert kernel.refusal(*arguments) is None
    for found, expected in zip(
        kernel.rotated_chunk(*arguments), reference(*arguments), strict=True
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_all_is_rotated_to_its_place(size):
    q, k, cached, cos, sin = given(size, torch.float64, "cpu")
    queries, keys = reference(q, k, cached, cos, sin)
    H, _, T, C, *_ = size
    for s in range(C + T):
        row = cached[:, s] if s < C else k[:, s - C]
        row = (
            row if cos is None else rotate_half(row[:, None], cos[s : s + 1], sin[s : s + 1])[:, 0]
        )
        assert torch.equal(keys[:, s], row)
    for t in range(T):
        at = slice(C + t, C + t + 1)
        row = q[:, t : t + 1]
        assert torch.equal(
            queries[:, t : t + 1], row if cos is None else rotate_half(row, cos[at], sin[at])
        )
    assert len(queries) == H


def test_what_it_refuses(kernel, device):
    q, k, cached, cos, sin = given(SIZES[0], torch.float32, device)
    assert "one of them" in kernel.refusal(q.double(), k, cached, cos, sin)
    assert "one of them" in kernel.refusal(q, k, cached.half(), cos, sin)
    assert "does not rotate" in kernel.refusal(q, k, cached, cos, None)
    assert "rows" in kernel.refusal(q.mT.contiguous().mT, k, cached, cos, sin)
    assert "cos or sin" in kernel.refusal(q, k, cached, cos.T.contiguous().T, sin)
    narrow = [x.bfloat16() for x in (q, k, cached, cos, sin)]
    assert (device == "cpu") == ("interpreter" in str(kernel.refusal(*narrow)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("C", [0, 8192])
def test_real_chunks(kernel, dtype, C):
    arguments = given((32, 8, 8192, C, 128, 128), dtype, "cuda")
    for found, expected in zip(
        kernel.rotated_chunk(*arguments), reference(*arguments), strict=True
    ):
        assert torch.equal(found, expected)
