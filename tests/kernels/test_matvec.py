"""The kernel of a matrix times a vector, against its definition in float64."""

from itertools import product

import pytest
import torch
from sampled import sampled

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.matvec.definition

WITHIN = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2.4e-2}
OPTIONS = {
    "plain": set(),
    "bias": {"bias"},
    "norm": {"norm"},
    "residual": {"residual"},
    "gated": {"gated"},
    "norm, bias and residual": {"norm", "bias", "residual"},
    "all": {"norm", "bias", "residual", "gated"},
}
# N, K and how it is cut: rows, columns, warps, programs for each multiprocessor
SIZES = [
    (24, 256, None),
    (6, 1, None),
    (2, 33, (8, 64, 1, 1)),  # fewer rows than a tile
    (10, 300, (4, 128, 1, 2)),  # several steps of a row, programs that take turns
    (34, 300, (2, 512, 2, 3)),  # the vector in registers, blocks that do not divide
    (22, 96, (4, 32, 1, 0)),  # a program for each block
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import matvec

    return matvec


def given(N, K, dtype, device, options=("bias", "norm", "residual", "gated")):
    """Arguments by name."""
    generator = torch.Generator().manual_seed(N + K)

    def random(*shape):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    made = {"x": random(K), "weight": random(N, K), "bias": random(N), "norm": random(K) + 1}
    made["residual"] = random(N // 2 if "gated" in options else N)
    chosen = {name: t for name, t in made.items() if name in {"x", "weight", *options}}
    return chosen | {"eps": 0.01, "gated": "gated" in options}


def truth(x, weight, bias=None, norm=None, eps=0.0, residual=None, gated=False):
    """(M,) float64, row after row by the formula."""
    x = x.double()
    if norm is not None:
        x = x / ((x * x).sum() / len(x) + eps).sqrt() * norm.double()
    out = torch.stack([(row.double() * x).sum() for row in weight])
    if bias is not None:
        out = out + bias.double()
    if gated:
        half = len(out) // 2
        out = out[:half] / (1 + (-out[:half]).exp()) * out[half:]
    return out if residual is None else out + residual.double()


def result(module, arguments, cut=None):
    assert module.refusal(**arguments) is None
    settings = None if cut is None else module.Settings(*cut)
    return module.matvec(**arguments, settings=settings)


def error(out, expected):
    return float((out.double() - expected).norm() / expected.norm())


WAYS = [*((torch.float32, name) for name in OPTIONS), (torch.float16, "all")]


@pytest.mark.parametrize(("size", "way"), sampled(product(SIZES, WAYS), 18), ids=str)
def test_it_is_the_definition(kernel, device, size, way):
    (N, K, cut), (dtype, options) = size, way
    arguments = given(N, K, dtype, device, OPTIONS[options])
    expected = truth(**arguments)
    out = result(kernel, arguments, cut)
    assert out.dtype == dtype
    assert out.shape == expected.shape
    assert error(out, expected) < WITHIN[dtype]
    assert error(reference(**arguments), expected) < WITHIN[dtype]


def test_an_odd_number_of_rows(kernel, device):
    arguments = given(7, 70, torch.float32, device, {"norm", "bias"})
    assert error(result(kernel, arguments, (4, 32, 1, 1)), truth(**arguments)) < 1e-5


def test_rows_of_a_larger_matrix(kernel, device):
    arguments = given(10, 40, torch.float32, device)
    expected = truth(**arguments)
    wide = torch.full((10, 50), torch.nan, device=device)
    wide[:, :40] = arguments["weight"]
    assert error(result(kernel, arguments | {"weight": wide[:, :40]}), expected) < 1e-5


def test_how_it_is_cut_changes_only_the_order_of_sums(kernel, device):
    arguments = given(34, 500, torch.float32, device)
    cuts = [None, (2, 64, 1, 1), (16, 128, 2, 0), (4, 1024, 2, 2)]
    first, *others = (result(kernel, arguments, cut) for cut in cuts)
    for out in others:
        assert torch.allclose(out, first, rtol=1e-5, atol=1e-5)


def test_the_vector_is_rounded_where_the_definition_rounds_it(kernel, device):
    """A norm whose weight is large shows what was rounded before it."""
    arguments = given(16, 64, torch.float16, device, {"norm"})
    arguments["weight"] = torch.eye(16, 64, dtype=torch.float16, device=device)
    out, expected = result(kernel, arguments), reference(**arguments)
    same = (out == expected).double().mean()  # 1 / root may differ in its last bit
    assert same > 0.9


@pytest.mark.parametrize("left_out", ["bias", "norm", "residual"])
def test_every_option_counts(kernel, device, left_out):
    arguments = given(12, 64, torch.float32, device)
    without = {name: t for name, t in arguments.items() if name != left_out}
    assert error(result(kernel, without), truth(**arguments)) > 0.01


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    arguments = given(10, 65, torch.float32, device)
    assert error(door.matvec(**arguments), truth(**arguments)) < 1e-5


def test_what_it_refuses(kernel, device):
    arguments = given(10, 64, torch.float16, device)
    x, weight = arguments["x"], arguments["weight"]

    def why(**changes):
        return kernel.refusal(**arguments | changes)

    assert why() is None
    assert "float32" in why(norm=arguments["norm"].float())
    assert "float64" in why(**{n: t.double() for n, t in arguments.items() if torch.is_tensor(t)})
    assert "2 dimensions" in why(x=x[None])
    assert "contiguous" in why(weight=weight.T.contiguous().T)
    assert "9 rows" in why(weight=weight[:9])
    assert "empty" in why(weight=weight[:0])
    if device == "cpu":
        half = {n: t.bfloat16() for n, t in arguments.items() if torch.is_tensor(t)}
        assert "interpreter" in why(**half)


REAL = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096), (37888, 3584)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("size", [*REAL, (1030, 5120), (1002, 9001)], ids=str)
def test_real_sizes(dtype, options, size):
    from longctx.kernels import matvec

    arguments = given(*size, dtype, "cuda", OPTIONS[options])
    arguments["weight"] *= 0.02
    wide = {n: t.double() if torch.is_tensor(t) else t for n, t in arguments.items()}
    out = result(matvec, arguments)
    assert error(out, reference(**wide)) < WITHIN[dtype]
    assert torch.equal(out, result(matvec, arguments))


@pytest.mark.gpu
def test_a_graph_of_products_that_need_one_another():
    """Each reads its matrix before the one before has ended, and the vector after."""
    from longctx.kernels import matvec

    generator = torch.Generator("cuda").manual_seed(0)
    shape = (20, 1024, 1024)
    weights = torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16) / 8
    x = torch.randn(1024, generator=generator, device="cuda", dtype=torch.bfloat16)
    norm = torch.ones_like(x)

    def through():
        state = x
        for weight in weights:
            state = matvec.matvec(state, weight, norm=norm, residual=state)
        return state

    expected = through()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = through()
    for _ in range(20):
        graph.replay()
        assert torch.equal(out, expected)
