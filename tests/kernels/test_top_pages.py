"""The kernels that find the best pages and stamp those that were worth it, against definitions."""

from itertools import product

import pytest
import torch
from sampled import covering, sampled

from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels.top_pages_ref import Stamps

stamp_reference, top_reference = door.stamp.definition, door.top_pages.definition


@pytest.fixture
def kernel(device, monkeypatch):
    from longctx.kernels import top_pages

    monkeypatch.setattr(top_pages, "RUN", 64)
    monkeypatch.setattr(top_pages, "LIST", 256)
    monkeypatch.setattr(top_pages, "EACH", 32)
    return top_pages


# --- the best pages ---


COUNTS = [1, 7, 64, 129, 1000]


def top_cases():
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(2, 300, generator=generator)
    return {
        "noise": noise,
        "ties": (noise * 1.5).round(),
        "equal": torch.zeros(2, 300),
        "zeros": torch.where(noise > 0, 0.0, -0.0),
        "infinite": torch.where(noise > 0.5, noise, -torch.inf),
        "few": noise[:, :40],
        "one": noise[:, :1],
        "extreme": noise * torch.tensor([1e38, 1e-38])[:, None],
    }


@pytest.mark.parametrize(("name", "count"), sampled(product(top_cases(), COUNTS), 12), ids=str)
def test_the_best_pages(kernel, device, name, count, monkeypatch):
    if count > 300:
        monkeypatch.setattr(kernel, "RUN", 512)
    scores = top_cases()[name].to(device)
    assert kernel.refusal(scores, count) is None
    found = kernel.top_pages(scores, count)
    assert found.dtype == torch.int64
    assert torch.equal(found, top_reference(scores, count))
    for head, pages in zip(scores.tolist(), found.tolist(), strict=True):
        best = sorted(range(len(head)), key=lambda p: (-head[p], p))[:count]
        assert pages == sorted(best)


def test_scores_of_a_larger_buffer(kernel, device):
    scores = top_cases()["noise"].to(device)[:, 10:210]
    assert torch.equal(kernel.top_pages(scores, 20), top_reference(scores, 20))


def test_into_a_larger_buffer(kernel, device):
    scores = top_cases()["noise"].to(device)
    for find in (kernel.top_pages, top_reference):
        room = torch.full((2, 25), -7, device=device)
        found = find(scores, 20, room[:, 3:23])
        assert found.data_ptr() == room[:, 3:].data_ptr()
        assert torch.equal(room[:, 3:23], top_reference(scores, 20))
        assert (room[:, :3] == -7).all()
        assert (room[:, 23:] == -7).all()


@pytest.mark.parametrize("count", [1, 300])
def test_blocks_of_either_size(kernel, device, monkeypatch, count):
    """Counts of few pages and of many are kept in integers of different sizes."""
    generator = torch.Generator().manual_seed(2)
    noise = (torch.randn(2, 1500, generator=generator) * 50).round().to(device)
    monkeypatch.setattr(kernel, "RUN", 2048)
    for scores in (noise[:, :500], noise[:, :512], noise[:, :513], noise):
        assert torch.equal(kernel.top_pages(scores, count), top_reference(scores, count))


def test_runs_grow_until_their_best_fit_a_list(kernel):
    assert [kernel._run(300, count) for count in (1, 51, 52, 85, 86, 128)] == [
        64, 64, 128, 128, 256, 256,
    ]  # fmt: skip


# --- stamps ---


def stamped(scores, alpha):
    """Stamps of these pages, whose numbers in the text are not in their order."""
    N, P = scores.shape
    generator = torch.Generator().manual_seed(P)
    order = torch.stack([torch.randperm(3 * P, generator=generator)[:P] for _ in range(N)])
    stamps = torch.randint(0, 50, (N, P), generator=generator)
    now = torch.tensor([77], device=scores.device)
    return Stamps(stamps.to(scores.device), order.to(scores.device), now, alpha)


def worth(scores, order, alpha):
    """The pages of a row that get a stamp."""
    used = [p for p, score in enumerate(scores.tolist()) if score > -torch.inf]
    if alpha is not None:
        shares = torch.softmax(scores.double(), dim=-1)
        return [p for p in used if shares[p] >= alpha * (1 - 1e-6)]
    best = sorted(used, key=lambda p: (-float(scores[p]), int(order[p])))
    return sorted(best[: (len(used) + 1) // 2])


@pytest.mark.parametrize(
    ("name", "alpha"),
    covering(
        ["noise", "ties", "equal", "zeros", "infinite", "few", "one"],
        [None, 0.02, 0.0, 1.0],
        meet=1,
    ),
)
def test_stamps(kernel, device, name, alpha):
    room = torch.full((2, 310), torch.nan, device=device)
    scores = room[:, 4 : 4 + top_cases()[name].shape[1]]
    scores.copy_(top_cases()[name])
    for renew in (kernel.stamp, stamp_reference):
        stamps = stamped(scores, alpha)
        before = stamps.stamps.clone()
        assert kernel.stamp_refusal(scores, stamps) is None
        renew(scores, stamps)
        renewed = stamps.stamps == 77
        assert torch.equal(stamps.stamps[~renewed], before[~renewed])
        for row, order, mine in zip(scores, stamps.order, renewed, strict=True):
            assert mine.nonzero().flatten().tolist() == worth(row, order, alpha)


@pytest.mark.parametrize("alpha", [None, 0.0])
def test_nothing_in_use_gets_no_stamps(kernel, device, alpha):
    scores = torch.full((3, 37), -torch.inf, device=device)
    for renew in (kernel.stamp, stamp_reference):
        stamps = stamped(scores, alpha)
        renew(scores, stamps)
        assert (stamps.stamps < 77).all()


# --- both ---


@pytest.mark.parametrize("choice", choice_module.CHOICES)
def test_the_door_gives_either(device, monkeypatch, choice):
    monkeypatch.setenv(choice_module.VARIABLE, choice)
    scores = top_cases()["ties"].to(device)
    assert torch.equal(door.top_pages(scores, 9), top_reference(scores, 9))
    stamps, other = (stamped(scores, None) for _ in range(2))
    door.stamp(scores, stamps)
    stamp_reference(scores, other)
    assert torch.equal(stamps.stamps, other.stamps)


def test_what_it_refuses(kernel, device):
    scores = torch.zeros(2, 300, device=device)
    assert "float64" in kernel.refusal(scores.double(), 3)
    assert "int32" in kernel.refusal(scores, 3, scores[:, :3].int())
    assert "no 0 of 300" in kernel.refusal(scores, 0)
    assert "no 1025 of 2000" in kernel.refusal(torch.zeros(2, 2000, device=device), 1025)
    stamps = stamped(scores, None)
    assert "float64" in kernel.stamp_refusal(scores.double(), stamps)
    assert "no 300 pages of 0" in kernel.stamp_refusal(scores[:0], stamps)
    assert "no 65537 pages" in kernel.stamp_refusal(scores[:, :1].expand(-1, 65537).clone(), stamps)
    assert "not int64" in kernel.stamp_refusal(scores, stamps._replace(order=stamps.order.int()))
    turned = stamps._replace(stamps=stamps.stamps.T.contiguous().T)
    assert "contiguous" in kernel.stamp_refusal(scores, turned)


# --- real sizes ---


@pytest.mark.gpu
@pytest.mark.parametrize("P", [100, 1000, 8192, 20_000, 65_536])
@pytest.mark.parametrize("count", [1, 256, 1024])
def test_many_pages(P, count):
    from longctx.kernels import top_pages

    noise = torch.randn(8, P, device="cuda", generator=torch.Generator("cuda").manual_seed(P))
    for scores in (noise, (noise * 20).round(), noise.zero_()):
        assert top_pages.refusal(scores, count) is None
        expected = top_reference(scores, count)
        assert torch.equal(top_pages.top_pages(scores, count), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("P", [100, 1000, 8192, 65_536])
@pytest.mark.parametrize("alpha", [None, 1e-4])
def test_many_stamps(P, alpha):
    from longctx.kernels import top_pages

    noise = torch.randn(20, P, device="cuda", generator=torch.Generator("cuda").manual_seed(P))
    for scores in (noise, (noise * 20).round(), noise.clone().zero_()):
        stamps, other = (stamped(scores, alpha) for _ in range(2))
        top_pages.stamp(scores, stamps)
        stamp_reference(scores, other)
        # A share that is nearly alpha may be rounded to either side of it.
        allowed = 0 if alpha is None else 5e-3
        assert float((stamps.stamps != other.stamps).double().mean()) <= allowed
