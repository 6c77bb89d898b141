"""The kernel that gathers rows and rotates them to their places, against its definition."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.rotated_rows.definition

# N, S, G, D, rotated dimensions
SIZES = [
    (50, 33, 2, 64, 64),
    (40, 60, 3, 80, 40),  # a part is rotated; tokens recur
    (9, 21, 1, 24, 10),
    (30, 7, 8, 128, 0),  # nothing is rotated
    (1, 1, 1, 2, 2),
]
KINDS = [  # of the rows, of the result
    (torch.float32, torch.float32),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float16),
    (torch.int8, torch.float16),
    (torch.int8, torch.float32),
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import rotated_rows

    return rotated_rows


def tables(P, R, dtype):
    """cos and sin (P, R) of plain rotary embedding, with a factor as YaRN has."""
    angles = torch.arange(P)[:, None] * 100.0 ** -torch.linspace(0, 1, R // 2)
    angles = torch.cat([angles, angles], dim=-1)
    return (angles.cos() * 1.2).to(dtype), (angles.sin() * 1.2).to(dtype)


def given(size, kind, dtype, device, far=1):
    """Arguments by name; some rows of the index are not there, by `far`."""
    N, S, G, D, R = size
    generator = torch.Generator().manual_seed(N + S)
    rows, scales = torch.randn(N, G, D, generator=generator), None
    if kind == torch.int8:
        rows = rows * 40
        scales = (torch.rand(N, G, generator=generator) / 40).half().to(device)
    index = torch.randint(0, N, (S,), generator=generator)
    index[::7] += N - 1 + far
    index[1::9] -= N - 1 + far
    cos, sin = (x.to(device) for x in tables(S + 5, R, dtype)) if R else (None, None)
    return {
        "rows": rows.to(device, kind),
        "index": index.to(device),
        "cos": cos,
        "sin": sin,
        "scales": scales,
        "dtype": dtype,
    }


def plainly(rows, index, cos, sin, scales, dtype, start=0):
    """Row after row and pair after pair, in float64."""
    found = []
    for s, r in enumerate(index.clamp(0, len(rows) - 1).tolist()):
        row = rows[r].double()
        row = row if scales is None else row * scales[r].double()[:, None]
        turned, half = row.clone(), 0 if cos is None else cos.shape[-1] // 2
        for i in range(half):
            c, z = cos[start + s, [i, i + half]].double(), sin[start + s, [i, i + half]].double()
            a, b = row[:, i], row[:, i + half]
            turned[:, i], turned[:, i + half] = a * c[0] - b * z[0], b * c[1] + a * z[1]
        found.append(turned)
    return torch.stack(found)


def result(module, arguments, **more):
    assert module.refusal(**arguments, **more) is None
    return module.rotated_rows(**arguments, **more)


@pytest.mark.parametrize(("size", "kinds"), covering(SIZES, KINDS, meet=1), ids=str)
def test_it_is_the_definition_to_the_bit(kernel, device, size, kinds):
    arguments = given(size, *kinds, device)
    expected = reference(**arguments)
    assert expected.dtype == kinds[1]
    assert torch.equal(result(kernel, arguments), expected)
    error = (expected.double() - plainly(**arguments)).abs().max()
    assert error < 4 * torch.finfo(kinds[1]).eps * 4  # roundings of numbers of about 4


@pytest.mark.parametrize("far", [1, 1 << 40])
def test_rows_that_are_not_there_are_clamped(kernel, device, far):
    arguments = given(SIZES[0], torch.float32, torch.float32, device, far)
    assert int(arguments["index"].max()) >= 50 > 0 > int(arguments["index"].min())
    near = arguments | {"index": arguments["index"].clamp(0, 49)}
    assert torch.equal(result(kernel, arguments), result(kernel, near))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_the_last_positions_of_so_many(kernel, device, kind):
    arguments = given(SIZES[1], torch.float32, torch.float32, device)
    total = torch.tensor([64], dtype=kind, device=device)
    expected = plainly(**arguments, start=4).float()
    for found in (result(kernel, arguments, total=total), reference(**arguments, total=total)):
        assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(result(kernel, arguments), expected, atol=1e-1)


def test_all_rows_of_a_part_of_a_buffer(kernel, device):
    arguments = given((40, 40, 3, 64, 64), torch.float32, torch.float32, device) | {"index": None}
    buffer = torch.cat([arguments["rows"], arguments["rows"] + 1], dim=-1).transpose(0, 1)
    part = buffer.contiguous().transpose(0, 1)[..., :64]
    assert not part.is_contiguous()
    expected = plainly(**arguments | {"index": torch.arange(40)}).float()
    for module in (kernel.rotated_rows, reference):
        assert torch.allclose(module(**arguments | {"rows": part}), expected, atol=1e-5)


def test_the_dtype_is_that_of_the_tables(kernel, device):
    arguments = given(SIZES[0], torch.float32, torch.float16, device) | {"dtype": None}
    assert result(kernel, arguments).dtype == reference(**arguments).dtype == torch.float16


def test_nothing_selected(kernel, device):
    arguments = given(SIZES[0], torch.float32, torch.float32, device)
    arguments["index"] = arguments["index"][:0]
    assert result(kernel, arguments).shape == reference(**arguments).shape == (0, 2, 64)


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[0], torch.float16, torch.float16, device)
    rows, index = arguments["rows"], arguments["index"]

    def why(**other):
        return kernel.refusal(**arguments | other)

    assert why() is None
    assert "float64" in why(dtype=torch.float64)
    assert "float64" in why(rows=rows.double())
    assert "without scales" in why(rows=rows.to(torch.int8))
    assert "with scales" in why(scales=rows[..., 0])
    assert "int32 index" in why(index=index.int())
    assert "float32 total" in why(total=torch.ones(1))
    assert "64 of 32" in why(rows=rows[..., :32])
    assert "contiguous" in why(rows=torch.cat([rows, rows], dim=-1)[..., ::2])
    assert "no rows" in why(rows=rows[:0])
    assert "cos or sin" in why(cos=arguments["cos"].T.contiguous().T)
    assert (device == "cpu") == ("interpreter" in str(why(dtype=torch.bfloat16)))


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(SIZES[0], torch.int8, torch.float16, device)
    assert torch.equal(door.rotated_rows(**arguments), reference(**arguments))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("R", [128, 64, 0])
def test_real_rows(kernel, kind, dtype, R):
    arguments = given((30_000, 8192, 8, 128, R), kind, dtype, "cuda")
    assert torch.equal(result(kernel, arguments), reference(**arguments))
