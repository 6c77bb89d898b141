"""The kernel of attention to the first entries of a cache, against its definition in float64."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.cached_attention.definition

WITHIN = {torch.float32: 1e-5, torch.float16: 6e-4, torch.bfloat16: 5e-3}

# H, G, D, C, count
SIZES = [
    (4, 2, 64, 133, 133),  # full
    (4, 1, 80, 90, 61),
    (2, 2, 96, 70, 1),  # the token sees itself alone
    (6, 2, 128, 100, 99),  # groups of three
    (7, 1, 256, 40, 17),
    (34, 2, 16, 20, 19),  # more query heads of a group than a tile
]


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import cached_attention, split_attention

    # Parts of several steps, and more than one block of weights, whatever the device.
    monkeypatch.setattr(split_attention, "multiprocessors", lambda device: 4)
    monkeypatch.setattr(split_attention, "COLUMNS", 64)
    monkeypatch.setattr(split_attention, "MERGED", 256)
    monkeypatch.setattr(cached_attention, "SIZE", 1024)
    return cached_attention


def given(size, dtype, device, **more):
    """Arguments by name; what lies behind the count is no number."""
    H, G, D, C, count = size
    generator = torch.Generator().manual_seed(C + D)
    q = torch.randn(H, 1, D, generator=generator) * 2
    keys, values = torch.randn(2, G, C, D, generator=generator).unbind()
    keys[:, count:], values[:, count:] = torch.nan, torch.nan
    return {
        "q": q.to(device, dtype),
        "keys": keys.to(device, dtype),
        "values": values.to(device, dtype),
        "count": torch.tensor([count], device=device),
        "scale": D**-0.5,
        **more,
    }


def truth(q, keys, values, count, scale, window=None, softcap=None, sinks=None):
    """(H, 1, D) and what each entry received (G, C), float64, head after head by the formula."""
    H, (G, C, _), n = len(q), keys.shape, int(count)
    start = max(0, n - window) if window else 0
    outs, received = [], torch.zeros(G, C, dtype=torch.float64, device=q.device)
    for h in range(H):
        g = h // (H // G)
        logits = keys[g, start:n].double() @ q[h, 0].double() * scale
        if softcap:
            logits = softcap * torch.tanh(logits / softcap)
        shares = logits.exp()
        total = shares.sum() + (sinks[h].double().exp() if sinks is not None else 0)
        outs.append((shares / total) @ values[g, start:n].double())
        received[g, start:n] = torch.maximum(received[g, start:n], shares / total)
    return torch.stack(outs)[:, None], received


def result(module, arguments):
    assert module.refusal(**arguments) is None
    return module.cached_attention(**arguments)


def error(out, expected):
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("size", "dtype"), covering(SIZES, [torch.float32, torch.float16], meet=1), ids=str
)
def test_it_is_the_definition(kernel, device, size, dtype):
    arguments = given(size, dtype, device)
    expected, _ = truth(**arguments)
    out = result(kernel, arguments)
    assert out.dtype == dtype
    assert out.shape == arguments["q"].shape
    assert error(out, expected) < WITHIN[dtype]
    assert error(reference(**arguments), expected) < WITHIN[dtype]


OPTIONS = {
    "window": {"window": 37},
    "narrow": {"window": 1},
    "wide": {"window": 5000},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "all": {"window": 50, "softcap": 2.0, "sinks": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(kernel, device, name):
    _, G, _, C, _ = size = SIZES[3]
    options = dict(OPTIONS[name])
    if "sinks" in options:
        options["sinks"] = torch.linspace(-1, 3, size[0], device=device)
    arguments = given(size, torch.float32, device, **options)
    expected, received = truth(**arguments)
    assert error(result(kernel, arguments), expected) < 1e-5
    assert error(reference(**arguments), expected) < 1e-5
    room = torch.full((G, C + 3), 7.0, device=device)
    arguments["weights"] = room[:, :-3]  # a part of a larger buffer
    for attention in (lambda: result(kernel, arguments), lambda: reference(**arguments)):
        assert error(attention(), expected) < 1e-5
        assert torch.allclose(room[:, :-3].double(), received, rtol=1e-4, atol=1e-7)
        assert (room[:, :-3] == 0).equal(received == 0)
        assert (room[:, -3:] == 7).all()


@pytest.mark.parametrize("size", SIZES[1:3] + SIZES[5:], ids=str)
def test_weights_of_groups_of_all_sizes(kernel, device, size):
    weights = torch.full((size[1], size[3]), torch.nan, device=device)
    arguments = given(size, torch.float32, device, weights=weights)
    result(kernel, arguments)
    _, received = truth(**{name: x for name, x in arguments.items() if name != "weights"})
    assert torch.allclose(weights.double(), received, rtol=1e-4, atol=1e-7)


def test_a_cache_of_other_strides(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    expected, _ = truth(**arguments)
    for name in ("keys", "values"):  # (C, G, D + 8) in memory
        x = torch.nn.functional.pad(arguments[name], (0, 8), value=torch.nan)
        arguments[name] = x.transpose(0, 1).contiguous().transpose(0, 1)[..., :-8]
    assert error(result(kernel, arguments), expected) < 1e-5


def test_large_logits_and_a_count_of_32_bits(kernel, device):
    arguments = given(SIZES[0], torch.float32, device) | {"scale": 4.0}
    expected, _ = truth(**arguments)
    assert error(result(kernel, arguments), expected) < 1e-4
    short = arguments | {"count": arguments["count"].int()}
    assert torch.equal(result(kernel, short), result(kernel, arguments))


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    weights = torch.empty(2, 133, device=device)
    arguments = given(SIZES[0], torch.float32, device)
    expected, received = truth(**arguments)
    out = door.cached_attention(**arguments, weights=weights)
    assert error(out, expected) < 1e-5
    assert error(weights, received) < 1e-5


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[0], torch.float16, device)
    q, keys, values = (arguments[name] for name in ("q", "keys", "values"))

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert "float64" in why(q=q.double(), keys=keys.double(), values=values.double())
    assert "float32 values" in why(values=values.float())
    assert "float32 count" in why(count=arguments["count"].float())
    assert "3 queries" in why(q=q.expand(-1, 3, -1))
    assert "5 heads" in why(q=torch.cat([q, q[:1]]))
    assert "97" in why(values=torch.zeros(2, 133, 97, dtype=torch.float16, device=device))
    assert "contiguous" in why(keys=keys.mT.contiguous().mT)
    assert "window of 0" in why(window=0)
    assert "soft cap of 0" in why(softcap=0.0)
    assert "weights are torch.float16" in why(weights=torch.zeros(2, 133).half())
    if device == "cpu":
        half = {name: arguments[name].bfloat16() for name in ("q", "keys", "values")}
        assert "interpreter" in why(**half)


KINDS = [  # compiled: of each dtype and each head dimension
    *((torch.bfloat16, D) for D in (64, 80, 96, 128, 256)),
    (torch.float16, 128),
    (torch.float32, 80),
    (torch.float32, 256),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "D"), KINDS, ids=str)
def test_real_sizes(dtype, D):
    from longctx.kernels import cached_attention

    plain = given((32, 8, D, 8192, 8100), dtype, "cuda")
    options = {"window": 8000, "sinks": torch.linspace(-1, 3, 32, device="cuda")}
    weights = torch.empty(8, 8192, device="cuda")
    for count in (8100, 3):
        plain["count"].fill_(count)
        expected, _ = truth(**plain)
        out = result(cached_attention, plain)
        assert error(out, expected) < WITHIN[dtype]
        assert torch.equal(out, result(cached_attention, plain))
        expected, received = truth(**plain, **options)
        out = result(cached_attention, plain | options | {"weights": weights})
        assert error(out, expected) < WITHIN[dtype]
        assert error(weights, received) < WITHIN[dtype]


@pytest.mark.gpu
def test_one_graph_serves_every_count():
    from longctx.kernels import cached_attention

    arguments = given((8, 2, 128, 1000, 1000), torch.bfloat16, "cuda")
    result(cached_attention, arguments)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cached_attention.cached_attention(**arguments)
    for count in (1, 16, 517, 1000):
        arguments["count"].fill_(count)
        graph.replay()
        assert error(out, truth(**arguments)[0]) < WITHIN[torch.bfloat16]


@pytest.mark.gpu
def test_more_entries_than_32_bits_address(kernel):
    C, D = 9_000_000, 256  # 2.3e9 numbers
    cache = torch.zeros(1, C, D, dtype=torch.float16, device="cuda")
    cache[:, -1] = 1
    q, count = torch.ones(1, 1, D, dtype=torch.float16, device="cuda"), torch.tensor([C])
    out = kernel.cached_attention(q, cache, cache, count.cuda(), 1.0)
    assert out.unique().tolist() == [1.0]  # the logits are 0 and 256
