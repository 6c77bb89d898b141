"""The kernel that chooses a window by votes against its definition, ties and all sizes included."""

import math

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels.select_window_ref import Window

reference = door.select_window.definition

# N, count, span, first, last
SIZES = [
    (300, 5, 8, 3, 20),
    (517, 8, 5, 0, 7),  # an odd span; no first tokens
    (90, 3, 1, 2, 1),  # spans of one token
    (1, 1, 4, 1, 1),  # one of each
    (40, 16, 32, 2, 9),  # every span meets the next
    (700, 24, 6, 31, 65),
]
RUN, LAST = 128, 64  # so that small numbers of keys take several rounds


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import select_window

    monkeypatch.setattr(select_window, "RUN", RUN)
    monkeypatch.setattr(select_window, "LAST", LAST)
    monkeypatch.setattr(select_window, "TILE", 32)
    return select_window


def votes_of(N, most, density, device="cpu", scores=5):
    """Votes up to `most` for a part of N keys, and few different best scores, so that many tie."""
    generator = torch.Generator().manual_seed(N * 31 + most)
    voted = torch.rand(N, generator=generator) < density
    votes = torch.randint(1, most + 1, (N,), generator=generator, dtype=torch.int32) * voted
    best = torch.randint(-scores, scores + 1, (N,), generator=generator) / 3
    best = torch.where(voted, best, -math.inf)
    return votes.int().to(device), best.float().to(device)


def definition(votes, best, count, span, first, last, total):
    """The window by sorting and sets."""
    keys = [i for i, n in enumerate(votes.tolist()) if n > 0]
    keys.sort(key=lambda i: (-votes[i].item(), -best[i].item(), i))
    tokens = {
        token
        for key in keys[:count]
        for token in range(key - span // 2, key - span // 2 + span)
        if 0 <= token < len(votes)
    }
    middle = [first + token for token in sorted(tokens)]
    window = [*range(first), *middle, *range(total - last, total)]
    padding = [total - 1] * (first + count * span + last - len(window))
    return window + padding, [len(window)]


def check(found, *given):
    assert found.tokens.dtype == found.total.dtype == torch.int64
    assert (found.tokens.tolist(), found.total.tolist()) == definition(*given)


def sizes_of(size):
    N, count, span, first, last = size
    return count, span, first, last, first + N + last


@pytest.mark.parametrize(
    ("size", "density", "most"), covering(SIZES, [0, 0.02, 1], [1, 3, 1 << 16], meet=1), ids=str
)
def test_it_is_the_definition(kernel, device, size, most, density):
    given = *votes_of(size[0], most, density, device), *sizes_of(size)
    assert kernel.refusal(*given) is None
    check(reference(*given), *given)
    check(kernel.select_window(*given), *given)


@pytest.mark.parametrize("scores", [1 << 20, 0])
def test_real_scores_and_equal_ones(kernel, device, scores):
    given = *votes_of(900, 1, 0.9, device, scores), *sizes_of((900, 24, 4, 2, 8))
    check(kernel.select_window(*given), *given)
    check(reference(*given), *given)


def test_scores_of_every_kind_have_their_order(kernel, device):
    kinds = [0.0, -0.0, 1e-45, -1e-45, math.inf, -math.inf, 3e38, -3e38, 1.0, -1.0]
    best = torch.tensor(kinds * 20, device=device)
    votes = torch.ones(200, dtype=torch.int32, device=device)
    for count in (5, 21, 41, 61, 64):
        given = votes, best, count, 1, 0, 1, 201
        check(kernel.select_window(*given), *given)
        check(reference(*given), *given)


def test_runs_as_long_as_they_are(device):
    from longctx.kernels import select_window

    given = *votes_of(20_001, 40, 0.3, device), *sizes_of((20_001, 127, 32, 32, 400))
    check(select_window.select_window(*given), *given)


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_a_total_that_only_the_device_knows(kernel, device, size):
    """Keys behind the last one have no votes, and no span reaches them."""
    votes, best = votes_of(size[0], 3, 0.8, device)
    votes[-1], best[-1] = 1 << 16, 2.0  # its span ends with it
    room = torch.cat([votes, votes.new_zeros(70)]), torch.cat([best, best.new_full((70,), -9.0)])
    *sizes, total = sizes_of(size)
    there = torch.tensor([total], device=device)
    assert kernel.refusal(*room, *sizes, there) is None
    assert "int32 total" in kernel.refusal(*room, *sizes, there.int())
    for compute in (kernel.select_window, reference):
        check(compute(*room, *sizes, there), votes, best, *sizes, total)


def test_the_same_every_time(kernel, device):
    given = *votes_of(900, 2, 0.5, device), *sizes_of((900, 9, 7, 4, 11))
    first, again = (kernel.select_window(*given) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_what_it_refuses(kernel):
    (votes, best), ends = votes_of(50, 3, 0.5), (4, 4, 58)  # first, last, total
    assert kernel.refusal(votes, best, 127, 32, *ends) is None
    assert kernel.refusal(votes, best, 1024, 32, *ends) is None
    assert "int64" in kernel.refusal(votes.long(), best, 4, 4, *ends)
    assert "float64" in kernel.refusal(votes, best.double(), 4, 4, *ends)
    assert "contiguous" in kernel.refusal(votes[::2], best[::2], 4, 4, *ends)
    assert "of 0 keys" in kernel.refusal(votes[:0], best[:0], 4, 4, *ends)
    assert "2000 spans" in kernel.refusal(votes, best, 2000, 4, *ends)
    assert "of 300" in kernel.refusal(votes, best, 127, 300, *ends)


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    given = *votes_of(300, 3, 0.5, device), *sizes_of(SIZES[0])
    found = door.select_window(*given)
    assert isinstance(found, Window)
    check(found, *given)


@pytest.mark.gpu
@pytest.mark.parametrize("N", [4000, 65_536, 300_000, 1 << 20, 5_000_000])
@pytest.mark.parametrize("most", [1, 9, 1 << 16])
def test_real_sizes(N, most):
    from longctx.kernels import select_window

    for density in (1e-4, 0.06, 1):
        for count in (127, 1024):
            votes, best = votes_of(N, most, density, scores=1 << 10)
            sizes = sizes_of((N, count, 32, 32, 4096))
            found = select_window.select_window(votes.cuda(), best.cuda(), *sizes)
            for ours, expected in zip(found, reference(votes, best, *sizes), strict=True):
                assert torch.equal(ours.cpu(), expected)
