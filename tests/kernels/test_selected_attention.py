"""The kernel of attention to a selected list of keys, against its definition in float64."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels.selected_attention_ref import rotate_half

reference = door.selected_attention.definition

# Of the formula, and of the formula with rotated queries and keys that are rounded once.
WITHIN = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2.4e-2}
ROUNDED = {torch.float32: 1e-5, torch.float16: 6e-4, torch.bfloat16: 5e-3}

# H, G, D, rotated dimensions, S, entries in use
SIZES = [
    (4, 2, 64, 64, 133, 133),
    (4, 1, 80, 80, 90, 61),  # a list that is not full
    (2, 2, 96, 48, 70, 70),  # no groups; a part is rotated
    (8, 2, 128, 0, 65, 33),  # nothing is rotated
    (3, 1, 256, 256, 40, 7),
    (2, 1, 24, 16, 5, 1),  # the token sees itself alone
    (40, 2, 16, 16, 20, 19),  # more query heads of a group than a tile
]


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import selected_attention

    monkeypatch.setattr(selected_attention, "PROGRAMS", 2)  # several steps of a part, and parts
    return selected_attention


def tables(S, R):
    """cos and sin (S, R) of plain rotary embedding, with a factor as YaRN has."""
    angles = torch.arange(S)[:, None] * 100.0 ** -torch.linspace(0, 1, R // 2)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos() * 1.2, angles.sin() * 1.2


def given(size, dtype, device, quantized=False, N=300):
    """Arguments by name; what is padding in the index, the values and the tables is wild."""
    H, G, D, R, S, total = size
    generator = torch.Generator().manual_seed(S + D)
    q = torch.randn(H, 1, D, generator=generator) * 2
    keys, values = torch.randn(2, N, G, D, generator=generator).unbind()
    index = torch.randperm(N, generator=generator)[:S].sort().values
    index[total:] = 1 << 40
    more = {}
    if quantized:
        more["key_scales"] = (torch.rand(N, G, generator=generator) / 20).half().to(device)
        keys = torch.randint(-127, 128, (N, G, D), generator=generator, dtype=torch.int8)
    if R:
        cos, sin = tables(S + 3, R)
        more |= {"cos": cos.to(device, dtype), "sin": sin.to(device, dtype)}
    return {
        "q": q.to(device, dtype),
        "keys": keys.to(device) if quantized else keys.to(device, dtype),
        "values": values.to(device, dtype),
        "index": index.to(device),
        "total": torch.tensor([total], device=device),
        "scale": D**-0.5,
        **more,
    }


def truth(q, keys, values, index, total, scale, cos=None, sin=None, key_scales=None):
    """(H, 1, D) float64, head after head by the formula, from the entries in use alone."""
    total = int(total)
    index = index[:total]
    q, k, v = q.double(), keys[index].double(), values[index].double()
    if key_scales is not None:
        k = k * key_scales[index].double()[..., None]
    heads = []
    for h in range(len(q)):
        g = h // (len(q) // keys.shape[1])
        own, others = q[h], k[:, g]
        if cos is not None:
            own = turned(own, cos[total - 1 : total], sin[total - 1 : total])
            others = turned(others, cos[:total], sin[:total])
        weights = torch.softmax(own @ others.T * scale, dim=-1)
        heads.append(weights @ v[:, g])
    return torch.stack(heads)


def turned(x, cos, sin):
    """x (n, D) with dimension i turned with i + R/2, pair after pair."""
    half, x = cos.shape[-1] // 2, x.clone()
    for i in range(half):
        c, s = cos[:, i].double(), sin[:, i].double()
        a, b = x[:, i].clone(), x[:, i + half].clone()
        x[:, i], x[:, i + half] = a * c - b * s, b * c + a * s
    return x


def rounded(arguments):
    """Arguments in float64 without rotation: queries and keys rotated, then rounded once."""
    q, index, keys = (arguments[name] for name in ("q", "index", "keys"))
    index = index.clamp(max=len(keys) - 1)
    own = arguments["total"] - 1
    keys, once = keys[index].double(), {}
    if "cos" in arguments:
        cos, sin = arguments["cos"].double(), arguments["sin"].double()
        keys = rotate_half(keys.transpose(0, 1), cos[: len(keys)], sin[: len(keys)])
        keys, q = keys.transpose(0, 1), rotate_half(q.double(), cos[own], sin[own])
    if "key_scales" in arguments:
        once = {"key_scales": arguments["key_scales"][index]}
    return once | {
        "q": q.to(arguments["q"].dtype).double(),
        "keys": keys.to(arguments["q"].dtype).double(),
        "values": arguments["values"][index].double(),
        "index": torch.arange(len(index), device=index.device),
        "total": arguments["total"],
        "scale": arguments["scale"],
    }


def result(module, arguments, **more):
    assert module.refusal(**arguments, **more) is None
    return module.selected_attention(**arguments, **more)


def error(out, expected):
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("size", "dtype", "quantized"),
    covering(SIZES, [torch.float32, torch.float16], [False, True], meet=1),
    ids=str,
)
def test_it_is_the_definition(kernel, device, size, dtype, quantized):
    arguments = given(size, dtype, device, quantized)
    expected = truth(**arguments)
    out = result(kernel, arguments)
    assert out.dtype == dtype
    assert out.shape == arguments["q"].shape
    assert error(out, expected) < WITHIN[dtype]
    assert error(out, truth(**rounded(arguments))) < ROUNDED[dtype]
    assert error(reference(**arguments), expected) < ROUNDED[dtype]


def test_values_that_are_gathered_already(kernel, device):
    arguments = given(SIZES[1], torch.float32, device)
    expected = truth(**arguments)
    rows = arguments["index"].clamp(max=299)
    values = arguments["values"][rows]
    values[int(arguments["total"]) :] = torch.nan
    arguments["values"] = values
    assert error(result(kernel, arguments, gathered=True), expected) < 1e-5
    assert error(reference(**arguments, gathered=True), expected) < 1e-5


def test_keys_and_values_of_a_larger_buffer(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    expected = truth(**arguments)
    for name in ("keys", "values"):
        x = arguments[name]
        arguments[name] = torch.cat([x, x + 1], dim=-1).transpose(0, 1).contiguous()
        arguments[name] = arguments[name].transpose(0, 1)[..., : x.shape[-1]]
        assert not arguments[name].is_contiguous()
    assert error(result(kernel, arguments), expected) < 1e-5


def test_large_logits(kernel, device):
    arguments = given(SIZES[0], torch.float32, device) | {"scale": 4.0}
    assert error(result(kernel, arguments), truth(**arguments)) < 1e-4


def test_half_precision_rounds_rotated_keys_and_weights_once(kernel, device):
    arguments = given(SIZES[0], torch.float16, device) | {"scale": 1.0}  # logits of about ±50
    assert error(result(kernel, arguments), truth(**rounded(arguments))) < ROUNDED[torch.float16]


def test_the_order_of_the_list_and_the_total_count(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    out = result(kernel, arguments)
    backwards = arguments | {"index": arguments["index"].flip(0)}
    fewer = arguments | {"total": arguments["total"] - 1}
    assert error(result(kernel, backwards), out.double()) > 0.05
    assert error(result(kernel, fewer), out.double()) > 0.01
    int32 = arguments | {"total": arguments["total"].int()}
    assert torch.equal(result(kernel, int32), out)


def test_soft_caps_and_sinks_are_the_references(device, monkeypatch):
    monkeypatch.setenv(choice_module.VARIABLE, "triton")
    arguments = given(SIZES[3], torch.float32, device)
    total, (H, _, D) = int(arguments["total"]), arguments["q"].shape
    index = arguments["index"][:total]
    k, v = (arguments[name][index].transpose(0, 1) for name in ("keys", "values"))
    k, v = (x.double().repeat_interleave(H // len(x), 0) for x in (k, v))
    sinks = torch.linspace(-1, 3, H).to(device)
    logits = (arguments["q"].double() @ k.mT * D**-0.5 / 1.5).tanh() * 1.5
    with_sinks = torch.cat([logits, sinks.double().view(H, 1, 1)], dim=-1).softmax(-1)
    out = door.selected_attention(**arguments, softcap=1.5, sinks=None)
    assert error(out, logits.softmax(-1) @ v) < 1e-5
    out = door.selected_attention(**arguments, softcap=1.5, sinks=sinks)
    assert error(out, with_sinks[..., :-1] @ v) < 1e-5


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(SIZES[2], torch.float32, device, quantized=True)
    assert error(door.selected_attention(**arguments), truth(**arguments)) < 1e-5


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[2], torch.float16, device)
    q, keys, values = (arguments[name] for name in ("q", "keys", "values"))

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert "softcap" in why(softcap=50.0)
    assert "sinks" in why(sinks=torch.zeros(2))
    assert "float64" in why(q=q.double(), keys=keys.double(), values=values.double())
    assert "float32 values" in why(values=values.float())
    assert "int8" in why(keys=keys.to(torch.int8))
    assert "int32 index" in why(index=arguments["index"].int())
    assert "3 queries" in why(q=q.expand(-1, 3, -1))
    assert "97" in why(q=q, values=torch.zeros(9, 2, 97, dtype=torch.float16, device=device))
    assert "rotate 49" in why(cos=torch.zeros(90, 49), sin=torch.zeros(90, 49))
    assert "rotate" in why(sin=None)
    assert "contiguous" in why(keys=keys.transpose(1, 2))
    if device == "cpu":
        half = {name: arguments[name].bfloat16() for name in ("q", "keys", "values")}
        assert "interpreter" in why(**half)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("D", [64, 80, 96, 128, 256])
def test_real_sizes(dtype, quantized, D):
    from longctx.kernels import selected_attention

    size = (32, 8, D, D, 8192, 8100)
    arguments = given(size, dtype, "cuda", quantized, N=10_000)
    out = result(selected_attention, arguments)
    wide = {k: x.double() for k, x in arguments.items() if torch.is_tensor(x) and x.dtype == dtype}
    assert error(out, reference(**arguments | wide)) < WITHIN[dtype]
    assert error(out, reference(**rounded(arguments))) < ROUNDED[dtype]
    assert torch.equal(out, result(selected_attention, arguments))


@pytest.mark.gpu
def test_more_keys_than_32_bits_address(kernel):
    N, G, D = 5_000_000, 4, 128  # 2.56e9 entries
    keys = torch.zeros(N, G, D, dtype=torch.int8, device="cuda")
    keys[-1] = 1
    scales = torch.ones(N, G, dtype=torch.float16, device="cuda")
    q = torch.ones(8, 1, D, dtype=torch.bfloat16, device="cuda")
    values = torch.zeros(2, G, D, dtype=torch.bfloat16, device="cuda")
    values[1] = 1
    index, total = torch.tensor([0, N - 1], device="cuda"), torch.tensor([2], device="cuda")
    out = kernel.selected_attention(
        q, keys, values, index, total, 1.0, key_scales=scales, gathered=True
    )
    assert out.unique().tolist() == [1.0]  # the logits are 0 and 128
