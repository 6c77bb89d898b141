"""The kernel that writes a token to its caches and rotates it, against its definition."""

import pytest
import torch

from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels.append_rotated_ref import PAGE, Pages, Store

reference = door.append_rotated.definition

# H, G, D, rotated dimensions
SIZES = [(4, 2, 64, 64), (3, 3, 80, 40), (7, 1, 24, 10), (6, 2, 128, 0), (8, 8, 2, 2)]
CAPACITY = 3 * PAGE


@pytest.fixture
def kernel(device):
    from longctx.kernels import append_rotated

    return append_rotated


def given(size, dtype, device, slots=(5,), paged=False):
    """Arguments by name; the stores hold noise, so that what is not to change is seen."""
    H, G, D, R = size
    generator = torch.Generator().manual_seed(H + D)

    def noise(*shape):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    fused = noise(1, (H + 2 * G) * D)  # of one projection
    q, k, v = (x.view(-1, 1, D) for x in fused.split([H * D, G * D, G * D], dim=-1))
    stores = []
    for slot in slots:
        slot = torch.tensor(slot if isinstance(slot, list) else [slot], device=device)
        keys, values = noise(G, CAPACITY, D), noise(G, CAPACITY, D + 3)[..., :D]
        stores.append(Store(keys, values, slot))
    pages = None
    if paged:
        low, high = noise(G, CAPACITY // PAGE, D), noise(G, CAPACITY // PAGE, D)
        filled = torch.full((G, CAPACITY // PAGE), 9, dtype=torch.int32, device=device)
        pages = Pages(torch.minimum(low, high), torch.maximum(low, high), filled)
    angles = torch.arange(50)[:, None] * 100.0 ** -torch.linspace(0, 1, max(1, R // 2))
    angles = torch.cat([angles, angles], dim=-1)
    return {
        "q": q, "k": k, "v": v,
        "position": torch.tensor([41], device=device),
        "cos": (angles.cos() * 1.2).to(device, dtype) if R else None,
        "sin": (angles.sin() * 1.2).to(device, dtype) if R else None,
        "stores": stores,
        "pages": pages,
    }  # fmt: skip


def copy(x):
    """Deep, with the strides of each tensor as far as they matter to nobody."""
    if isinstance(x, torch.Tensor):
        return x.clone()
    if isinstance(x, tuple | list):
        parts = [copy(part) for part in x]
        return type(x)(*parts) if isinstance(x, tuple) else parts
    return x


def tensors(x):
    """All tensors within."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [tensor for part in x for tensor in tensors(part)] if isinstance(x, tuple | list) else []


def check(kernel, arguments):
    """The kernel does to the bit what the definition does, to what it is given too."""
    other = {name: copy(x) for name, x in arguments.items()}
    assert kernel.refusal(**arguments) is None
    out, expected = kernel.append_rotated(**arguments), reference(**other)
    for found, wanted in zip(
        tensors([out, *arguments.values()]), tensors([expected, *other.values()]), strict=True
    ):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)
    return out


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_it_is_the_definition_to_the_bit(kernel, device, size, dtype):
    check(kernel, given(size, dtype, device))
    own = [(7 * g) % CAPACITY for g in range(size[1])]  # each head has a place of its own
    check(kernel, given(size, dtype, device, slots=(33, own), paged=True))


def test_pairs_turn_by_the_tables(kernel, device):
    arguments = given(SIZES[0], torch.float32, device)
    out, (k, cos, sin) = check(kernel, arguments), (arguments[x] for x in ("k", "cos", "sin"))
    keys, values, _ = arguments["stores"][0]
    for g in range(2):
        for i in range(32):
            a, b, c, s = (float(x) for x in (k[g, 0, i], k[g, 0, i + 32], cos[41, i], sin[41, i]))
            assert float(keys[g, 5, i]) == pytest.approx(a * c - b * s, abs=1e-5)
            assert float(keys[g, 5, i + 32]) == pytest.approx(b * c + a * s, abs=1e-5)
    assert torch.equal(values[:, 5], arguments["v"][:, 0])
    assert out.shape == arguments["q"].shape
    assert not torch.equal(out, arguments["q"])


@pytest.mark.parametrize("slot", [0, PAGE - 1, PAGE, 2 * PAGE + 3])
def test_the_page_of_a_token(kernel, device, slot):
    arguments = given(SIZES[1], torch.float32, device, slots=(slot,), paged=True)
    before = copy(arguments["pages"])
    check(kernel, arguments)
    page, place = divmod(slot, PAGE)
    low, high, filled = (x[:, page] for x in arguments["pages"])
    key = arguments["stores"][0].keys[:, slot]
    assert (filled == place + 1).all()
    if place == 0:  # begun anew
        assert torch.equal(low, key)
        assert torch.equal(high, key)
    else:
        assert torch.equal(low, torch.minimum(before.low[:, page], key))
        assert torch.equal(high, torch.maximum(before.high[:, page], key))


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(SIZES[0], torch.float32, device, slots=(1, 2), paged=True)
    other = {name: copy(x) for name, x in arguments.items()}
    assert torch.equal(door.append_rotated(**arguments), reference(**other))
    for found, wanted in zip(tensors(arguments["stores"]), tensors(other["stores"]), strict=True):
        assert torch.equal(found, wanted)


def test_what_it_refuses(kernel, device):
    arguments = given(SIZES[0], torch.float16, device, paged=True)
    q, stores = arguments["q"], arguments["stores"]
    keys, values, slot = stores[0]

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert "for everything" in why(q=q.double())
    assert "for everything" in why(cos=arguments["cos"].float())
    assert "for everything" in why(stores=[Store(keys.float(), values, slot)])
    assert "3 tokens" in why(q=q.expand(-1, 3, -1))
    assert "64 dimensions" in why(v=arguments["v"][..., :-1])
    assert "rotate" in why(sin=None)
    assert "0 stores" in why(stores=[])
    assert "3 stores" in why(stores=stores * 3)
    assert "int64" in why(stores=[Store(keys, values, slot.int())])
    assert "last dimension" in why(stores=[Store(keys.mT.contiguous().mT, values, slot)])
    low, high, filled = arguments["pages"]
    assert "pages" in why(pages=Pages(low, high, filled.T.contiguous().T))
    if device == "cpu":
        low, high = low.bfloat16(), high.bfloat16()
        changes = {name: arguments[name].bfloat16() for name in ("q", "k", "v", "cos", "sin")}
        store = Store(keys.bfloat16(), values.bfloat16(), slot)
        assert "interpreter" in why(**changes, stores=[store], pages=Pages(low, high, filled))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("D", [64, 80, 96, 128, 256])
def test_real_sizes(kernel, dtype, D):
    check(kernel, given((32, 8, D, D), dtype, "cuda", slots=(20, list(range(8))), paged=True))
