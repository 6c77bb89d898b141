"""The kernel that finds the best tokens against its definition, ties and all sizes included."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door

reference = door.best_tokens.definition

# N, tokens in use, budget, pool
SIZES = [
    (300, 300, 20, 7),
    (450, 401, 31, 7),  # several rounds, and tokens that are not in use
    (257, 256, 32, 1),
    (517, 100, 32, 3),  # whole runs are not in use
    (200, 9, 32, 5),  # fewer in use than wanted
    (40, 40, 64, 7),  # fewer than wanted
    (129, 129, 64, 31),
    (1, 1, 1, 7),
]
RUN = 128  # so that few tokens take several rounds


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import best_tokens

    monkeypatch.setattr(best_tokens, "RUN", RUN)
    monkeypatch.setattr(best_tokens, "MOST", RUN // 2)
    return best_tokens


def weights_of(N, levels, device="cpu", rows=2):
    """Weights of few levels, so that many tie; behind them what is not to be read."""
    generator = torch.Generator().manual_seed(N * 31 + levels)
    levels = torch.randint(0, levels, (rows, N + 3), generator=generator) / levels
    return levels.to(device)[:, :N]


def sorted_by_the_rule(weights, count, budget, pool):
    found = []
    for row in weights.tolist():
        used, half = row[:count], pool // 2
        pooled = [max(used[max(0, i - half) : i + half + 1]) for i in range(count)]
        order = sorted(range(count), key=lambda i, p=pooled, u=used: (-p[i], -u[i], i))
        found.append([*order, *range(count, len(row))][:budget])
    return found


def check(function, weights, count, budget, pool):
    given = torch.tensor([count], device=weights.device)
    found = function(weights, given, budget, pool)
    assert found.dtype == torch.int64
    rows = zip(found.tolist(), sorted_by_the_rule(weights, count, budget, pool), strict=True)
    for ours, expected in rows:
        assert ours == expected


@pytest.mark.parametrize(("size", "levels"), covering(SIZES, [3, 1 << 20, 1], meet=1), ids=str)
def test_it_is_the_definition(kernel, device, size, levels):
    weights = weights_of(size[0], levels, device)
    assert kernel.refusal(weights, torch.tensor([1]), size[2], size[3]) is None
    check(kernel.best_tokens, weights, *size[1:])
    check(reference, weights, *size[1:])


def test_weights_of_every_kind_have_their_order(kernel, device):
    kinds = torch.tensor([0.0, -0.0, 1e-45, 1e-30, 0.5, 1.0, 128.0, float("inf")], device=device)
    weights = kinds.repeat(25).view(1, -1)
    for budget in (3, 25, 49, 60):
        check(kernel.best_tokens, weights, 200, budget, 1)


def test_without_a_number_there_are_still_tokens(kernel, device):
    """They are the caller's to read from, whatever has happened."""
    for value in (torch.nan, -torch.nan, -1.0):
        weights = torch.full((2, 300), value, device=device)
        found = kernel.best_tokens(weights, torch.tensor([250], device=device), 40, 7)
        assert all(sorted({*row}) == sorted(row) and max(row) < 300 for row in found.tolist())


def test_runs_as_long_as_they_are(device):
    from longctx.kernels import best_tokens

    check(best_tokens.best_tokens, weights_of(20_001, 1 << 16, device, 1), 19_000, 300, 3)


def test_what_it_refuses(kernel):
    weights, count = weights_of(50, 3), torch.tensor([50])
    assert "float64" in kernel.refusal(weights.double(), count, 4, 7)
    assert "contiguous" in kernel.refusal(weights[:, ::2], count, 4, 7)
    assert "int16" in kernel.refusal(weights, count.short(), 4, 7)
    assert "no 65 of 100" in kernel.refusal(weights_of(100, 3), count, 65, 7)
    assert "pool of 65" in kernel.refusal(weights, count, 4, 65)


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    check(door.best_tokens, weights_of(300, 9, device), 280, 40, 7)


@pytest.mark.gpu
@pytest.mark.parametrize("N", [5000, 131_072, 524_289])
@pytest.mark.parametrize("budget", [256, 4096, 8192])
def test_real_sizes(N, budget):
    from longctx.kernels import best_tokens

    for levels in (1, 50, 1 << 16):
        weights = weights_of(N, levels, "cuda", 8).square()
        for count in (N, N - 777, 3000):
            given = weights, torch.tensor([count], device="cuda"), budget, 7
            assert torch.equal(best_tokens.best_tokens(*given), reference(*given))
