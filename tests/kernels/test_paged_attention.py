"""The kernel of attention to chosen pages of a cache, against its definition in float64."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.paged_attention.definition

WITHIN = {torch.float32: 1e-5, torch.float16: 6e-4, torch.bfloat16: 5e-3}

# H, G, D, pages, entries of a page, chosen pages
SIZES = [
    (4, 2, 64, 9, 16, 5),
    (6, 2, 128, 13, 16, 13),
    (7, 1, 80, 5, 8, 3),
    (2, 2, 96, 4, 16, 1),
    (3, 1, 256, 3, 16, 2),
    (34, 2, 16, 6, 32, 4),  # more query heads of a group than a tile
]


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import paged_attention, split_attention

    monkeypatch.setattr(split_attention, "multiprocessors", lambda device: 4)
    monkeypatch.setattr(split_attention, "COLUMNS", 64)
    monkeypatch.setattr(paged_attention, "SIZE", 1024)  # parts of several steps
    return paged_attention


def given(size, dtype, device, **more):
    """Arguments by name; what is not in use is no number, and some pages have nothing in use."""
    H, G, D, P, page, chosen = size
    generator = torch.Generator().manual_seed(P + D)
    q = torch.randn(H, 1, D, generator=generator) * 2
    keys, values = torch.randn(2, G, P, page, D, generator=generator).unbind()
    filled = torch.randint(0, page + 1, (G, P), generator=generator, dtype=torch.int32)
    filled[:, ::3] = page
    order = torch.stack([torch.randperm(P, generator=generator) for _ in range(G)])
    pages = order[:, :chosen].sort(dim=-1).values
    filled[torch.arange(G), pages[:, 0]] = 1
    filled[0, pages[0, 1:2]] = 0
    unused = torch.arange(page) >= filled[..., None]
    keys[unused] = values[unused] = torch.nan
    return {
        "q": q.to(device, dtype),
        "keys": keys.flatten(1, 2).to(device, dtype),
        "values": values.flatten(1, 2).to(device, dtype),
        "filled": filled.to(device),
        "pages": pages.to(device),
        "scale": D**-0.5,
        **more,
    }


def truth(q, keys, values, filled, pages, scale, softcap=None, sinks=None):
    """(H, 1, D) float64, head after head by the formula, from the entries in use alone."""
    H, G, page, outs = len(q), len(keys), keys.shape[1] // filled.shape[1], []
    for h in range(H):
        g = h // (H // G)
        mine = range(filled.shape[1]) if pages is None else pages[g].tolist()
        rows = [page * p + i for p in mine for i in range(int(filled[g, p]))]
        logits = keys[g, rows].double() @ q[h, 0].double() * scale
        if softcap:
            logits = softcap * torch.tanh(logits / softcap)
        if sinks is not None:
            logits = torch.cat([logits, sinks[h : h + 1].double()])
        outs.append(torch.softmax(logits, dim=-1)[: len(rows)] @ values[g, rows].double())
    return torch.stack(outs)[:, None]


def result(module, arguments):
    assert module.refusal(**arguments) is None
    return module.paged_attention(**arguments)


def error(out, expected):
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("size", "dtype"), covering(SIZES, [torch.float32, torch.float16], meet=1), ids=str
)
def test_it_is_the_definition(kernel, device, size, dtype):
    arguments = given(size, dtype, device)
    expected = truth(**arguments)
    out = result(kernel, arguments)
    assert out.dtype == dtype
    assert out.shape == arguments["q"].shape
    assert error(out, expected) < WITHIN[dtype]
    clean = {name: arguments[name].nan_to_num(0) for name in ("keys", "values")}
    assert error(reference(**arguments | clean), expected) < WITHIN[dtype]


@pytest.mark.parametrize(
    ("softcap", "sinks", "every"), covering([None, 1.5], [False, True], [False, True]), ids=str
)
def test_options(kernel, device, softcap, sinks, every):
    arguments = given(SIZES[0], torch.float32, device, softcap=softcap)
    if sinks:
        arguments["sinks"] = torch.linspace(-1, 3, 4, device=device)
    if every:
        arguments["pages"] = None
    assert error(result(kernel, arguments), truth(**arguments)) < 1e-5


def test_the_order_of_the_pages_does_not_matter_and_the_choice_does(kernel, device):
    arguments = given(SIZES[1], torch.float32, device)
    out = result(kernel, arguments).double()
    backwards = arguments | {"pages": arguments["pages"].flip(1)}
    fewer = arguments | {"pages": arguments["pages"][:, :-1]}
    assert error(result(kernel, backwards), out) < 1e-5
    assert error(result(kernel, fewer), out) > 1e-3


def test_a_cache_of_other_strides(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    expected = truth(**arguments)
    for name in ("keys", "values"):  # (C, G, D + 8) in memory
        x = torch.nn.functional.pad(arguments[name], (0, 8), value=torch.nan)
        arguments[name] = x.transpose(0, 1).contiguous().transpose(0, 1)[..., :-8]
    arguments["pages"] = arguments["pages"].T.contiguous().T
    assert error(result(kernel, arguments), expected) < 1e-5


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(SIZES[0], torch.float32, device)
    expected = truth(**arguments)
    arguments |= {name: arguments[name].nan_to_num(0) for name in ("keys", "values")}
    assert error(door.paged_attention(**arguments), expected) < 1e-5


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[0], torch.float16, device)
    keys, filled, pages = (arguments[name] for name in ("keys", "filled", "pages"))

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert why(pages=None) is None
    assert "filling" in why(filled=filled.long())
    assert "pages are not int64" in why(pages=pages.int())
    assert "144 entries are no 7 pages" in why(filled=filled[:, :7])
    assert "soft cap" in why(softcap=-1.0)
    assert "float32 keys" in why(keys=keys.float())
    assert "contiguous" in why(keys=keys.mT.contiguous().mT)


KINDS = [  # compiled: of each dtype and each head dimension
    *((torch.bfloat16, D) for D in (64, 80, 96, 128, 256)),
    (torch.float16, 128),
    (torch.float32, 80),
    (torch.float32, 256),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "D"), KINDS, ids=str)
def test_real_sizes(dtype, D):
    from longctx.kernels import paged_attention

    arguments = given((32, 8, D, 512, 16, 100), dtype, "cuda")
    out = result(paged_attention, arguments)
    assert error(out, truth(**arguments)) < WITHIN[dtype]
    assert torch.equal(out, result(paged_attention, arguments))
    every = arguments | {"pages": None}
    assert error(result(paged_attention, every), truth(**every)) < WITHIN[dtype]
