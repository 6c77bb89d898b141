"""The kernel that bounds what is in a page, against its definition."""

import pytest
import torch

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.page_scores.definition

# H, G, D, P
SIZES = [(4, 2, 64, 37), (6, 2, 128, 16), (7, 1, 80, 5), (2, 2, 96, 1), (3, 1, 256, 20)]


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import page_scores, split_attention

    monkeypatch.setattr(split_attention, "multiprocessors", lambda device: 2)
    monkeypatch.setattr(page_scores, "SIZE", 1024)  # parts of several steps
    return page_scores


def given(size, dtype, device, ties=False):
    """Arguments by name; pages without entries have bounds that are no numbers."""
    H, G, D, P = size
    generator = torch.Generator().manual_seed(P + D)
    q = torch.randn(H, 1, D, generator=generator)
    a, b = torch.randn(2, G, P, D, generator=generator).unbind()
    if ties:
        a, b = (x[:, torch.arange(P) % 4] for x in (a, b))
    filled = torch.randint(1, 17, (G, P), generator=generator, dtype=torch.int32)
    filled[:, 3::5] = 0
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    low[filled == 0], high[filled == 0] = torch.nan, torch.nan
    return {
        "q": q.to(device, dtype),
        "low": low.to(device, dtype),
        "high": high.to(device, dtype),
        "filled": filled.to(device),
        "scale": D**-0.5,
    }


def truth(q, low, high, filled, scale):
    """(G, P) float64, page after page by the formula."""
    H, (G, P) = len(q), filled.shape
    scores = torch.full((G, P), -torch.inf, dtype=torch.float64, device=q.device)
    for g in range(G):
        heads = q[H // G * g : H // G * (g + 1)].double()  # (H/G, 1, D)
        of = torch.maximum(heads * low[g].double(), heads * high[g].double()).sum(-1) * scale
        scores[g] = torch.where(filled[g] > 0, of.amax(0), -torch.inf)
    return scores


def result(module, arguments, **more):
    assert module.refusal(**arguments, **more) is None
    return module.page_scores(**arguments, **more)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_it_is_the_definition(kernel, device, size, dtype):
    arguments = given(size, dtype, device)
    expected = truth(**arguments)
    for scores in (result(kernel, arguments), reference(**arguments)):
        assert scores.dtype == torch.float32
        assert torch.allclose(scores.double(), expected, rtol=1e-5, atol=1e-5)


def test_bounds_of_other_strides(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    expected = result(kernel, arguments)
    for name in ("low", "high"):
        arguments[name] = arguments[name].transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(result(kernel, arguments), expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_page_that_is_always_in_into_a_larger_buffer(kernel, device, size):
    arguments, P = given(size, torch.float32, device), size[-1]
    plain, page = result(kernel, arguments), torch.tensor([P // 2], device=device)
    expected = plain.index_fill(1, page, torch.inf)
    for compute in (kernel.page_scores, reference):
        room = torch.zeros(len(plain), P + 5, device=device)
        found = compute(**arguments, always=page, out=room[:, 2 : P + 2])
        assert found.data_ptr() == room[:, 2:].data_ptr()
        assert torch.allclose(room[:, 2 : P + 2], expected, rtol=1e-5, atol=1e-5)
        assert not room[:, :2].any()
        assert not room[:, P + 2 :].any()


def test_a_part_of_the_pages(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    expected = result(kernel, arguments)[:, 5:30]
    for name in ("low", "high", "filled"):
        arguments[name] = arguments[name][:, 5:30]
    assert torch.equal(result(kernel, arguments), expected)


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(SIZES[0], torch.float32, device)
    expected = reference(**arguments)
    assert torch.allclose(door.page_scores(**arguments), expected, rtol=1e-5, atol=1e-5)


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[0], torch.float16, device)
    filled = arguments["filled"]

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert "int64 filling" in why(filled=filled.long())
    assert "float32 keys" in why(low=arguments["low"].float())
    assert "int32 page" in why(always=torch.zeros(1, dtype=torch.int32))
    assert "float16 scores" in why(out=filled.half())
    assert "not contiguous" in why(filled=filled.T.contiguous().T)


KINDS = [  # compiled: of each dtype and each head dimension
    *((torch.bfloat16, D) for D in (64, 80, 96, 128, 256)),
    (torch.float16, 128),
    (torch.float32, 80),
    (torch.float32, 256),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "D"), KINDS, ids=str)
def test_real_sizes(dtype, D):
    from longctx.kernels import page_scores

    arguments = given((32, 8, D, 1000), dtype, "cuda")
    scores = result(page_scores, arguments)
    assert torch.allclose(scores.double(), truth(**arguments), rtol=1e-4, atol=1e-4)
