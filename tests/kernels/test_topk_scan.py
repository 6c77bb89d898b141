"""The exact top-k scan against its definition, an argsort in float64, ties included."""

import pytest
import torch
from sampled import covering

from longctx.kernels import choice as choice_module
from longctx.kernels import door
from longctx.kernels import topk_scan_ref as reference

scan = door.topk_scan.definition

# Triton's older interpreters take a loop's bounds from arrays of one element.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

# H, G, T, N, D
SIZES = [
    (4, 2, 2, 1000, 64),  # several parts of the keys, the last run not whole
    (4, 1, 5, 129, 80),  # one key in the last run; more rows than one tile's
    (2, 2, 1, 128, 128),  # whole runs only; no groups
    (8, 4, 1, 127, 64),  # less than a run
    (2, 1, 3, 3, 80),  # fewer keys than are wanted
    (1, 1, 1, 1, 8),  # one of each; a head dimension under the matrix units'
]
HALF, FLOATS = torch.float16, (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture
def kernel(device):
    from longctx.kernels import topk_scan

    return topk_scan


def integers(H, G, T, N, D, dtype=torch.float32, device="cpu", most=8):
    """Queries and keys whose dots are exact in float32, with many ties."""
    generator = torch.Generator().manual_seed(N * 31 + T)
    q = torch.randint(-most, most + 1, (H, T, D), generator=generator)
    keys = torch.randint(-most, most + 1, (N, G, D), generator=generator)
    return q.to(device, dtype), keys.to(device, dtype)


def logits_of(q, keys, scales=None):
    """(H, T, N) float64, head by head."""
    keys = keys.double() if scales is None else keys.double() * scales.double()[..., None]
    group = len(q) // keys.shape[1]
    return torch.stack([q[h].double() @ keys[:, h // group].T for h in range(len(q))])


def definition(q, keys, k, scales=None):
    """Scores and index by a stable sort of all logits."""
    scores, index = logits_of(q, keys, scales).sort(dim=-1, descending=True, stable=True)
    return scores[..., :k], index[..., :k]


def check(top, q, keys, k, scales=None):
    """Every field is what the definition says."""
    scores, index = definition(q, keys, k, scales)
    assert torch.equal(top.keys, index)
    assert torch.equal(top.scores.double(), scores)
    check_votes(top, len(keys))


def check_votes(top, N):
    """Votes and best scores by counting, one choice at a time."""
    votes, best = [0] * N, [-float("inf")] * N
    for key, score in zip(top.keys.flatten().tolist(), top.scores.flatten().tolist(), strict=True):
        votes[key] += 1
        best[key] = max(best[key], score)
    assert top.votes.dtype == torch.int32
    assert top.votes.tolist() == votes
    assert top.best.tolist() == best


def int8_of(q, keys):
    """Keys as int8 with scales, such that products of integers stay exact."""
    scales = torch.randint(1, 5, keys.shape[:2], generator=torch.Generator().manual_seed(1)) / 4
    return q, keys.to(torch.int8), scales.to(keys.device, HALF)


# --- the reference ---


@pytest.mark.parametrize(
    ("size", "dtype", "k"), covering([*SIZES, (8, 2, 33, 700, 64)], FLOATS, [1, 4, 7]), ids=str
)
def test_the_reference_is_the_definition(size, dtype, k):
    q, keys = integers(*size, dtype)
    top = scan(q, keys, k)
    assert top.scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    check(top, q, keys, k)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_reference_in_blocks_of_keys_and_queries(monkeypatch, dtype):
    monkeypatch.setattr(reference, "KEYS", 256)
    monkeypatch.setattr(reference, "BLOCK_LOGITS", 4 * 256)
    q, keys = integers(4, 2, 9, 1500, 64, dtype, most=2)
    check(scan(q, keys, 4), q, keys, 4)
    q, keys, scales = int8_of(q, keys)
    check(scan(q, keys, 4, scales), q, keys, 4, scales)


def test_the_reference_holds_nothing_of_queries_by_keys(monkeypatch):
    monkeypatch.setattr(reference, "KEYS", 128)
    monkeypatch.setattr(reference, "BLOCK_LOGITS", 1000)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for made in out if isinstance(out, tuple | list) else [out]:
                if isinstance(made, torch.Tensor) and not made._is_view():
                    largest = max(largest, made.numel())
            return out

    q, keys = integers(4, 2, 20, 1000, 16)
    with Watch():
        scan(q, keys, 4)
    assert 128 * 16 <= largest <= 2 * 128 * 16  # a block of keys


def test_no_keys():
    q, keys = integers(2, 1, 3, 0, 8)
    top = door.topk_scan(q, keys, 4)
    assert [tuple(x.shape) for x in top] == [(2, 3, 0), (2, 3, 0), (0,), (0,)]


@pytest.mark.parametrize("cut", [1, 3, 200, 499])
def test_ranges_scanned_apart_merge(cut):
    q, keys = integers(4, 2, 6, 500, 64, most=1)  # ties across the cut
    first, second = (scan(q, part, 4) for part in (keys[:cut], keys[cut:]))
    merged = reference.merge(first[:2], (second.scores, second.keys + cut), 4)
    whole = scan(q, keys, 4)
    assert torch.equal(merged[0], whole.scores)
    assert torch.equal(merged[1], whole.keys)
    votes, best = reference.count_votes(*merged, 500)
    assert torch.equal(votes, whole.votes)
    assert torch.equal(best, whole.best)


# --- the kernel ---


@pytest.mark.parametrize(("size", "dtype"), covering(SIZES, [HALF, torch.float32], meet=1), ids=str)
def test_the_kernel_is_the_definition(kernel, device, size, dtype):
    q, keys = integers(*size, dtype, device)
    check(kernel.topk_scan(q, keys, 4), q, keys, 4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fewer_are_wanted(kernel, device, k):
    q, keys = integers(2, 1, 2, 300, 64, HALF, device, most=1)
    check(kernel.topk_scan(q, keys, k), q, keys, k)


def test_many_rows(kernel, device):
    q, keys = integers(4, 1, 9, 140, 16, HALF, device)  # two tiles' and more
    check(kernel.topk_scan(q, keys, 1), q, keys, 1)


# Two parts of the keys and a rest, two parts, no whole run; other tests are without descriptors.
CUTS = [(8, 20, False), (8, 20, True), (8, 0, True), (0, 50, True)]


@pytest.mark.parametrize(
    ("cut", "tile", "int8"),
    covering(CUTS, [(64, 1), (128, 4), (256, 2)], [False, True], meet=1),
    ids=str,
)
def test_however_the_work_is_cut(kernel, device, cut, tile, int8):
    (runs, rest, descriptor), (count, sets) = cut, tile
    tile = kernel.Tile(16, count, 4, 1, programs=6, descriptor=descriptor, sets=sets)
    q, keys = integers(4, 2, 1, runs * count + rest, 80, HALF, device, most=1)
    q, keys, scales = int8_of(q, keys) if int8 else (q, keys, None)
    check(kernel.topk_scan(q, keys, 4, scales, tile=tile), q, keys, 4, scales)


@pytest.mark.parametrize(
    ("count", "int8", "descriptor"), [(700, False, True), (70, True, False), (4, False, False)]
)
def test_keys_that_only_the_device_counts(kernel, device, count, int8, descriptor):
    """What lies behind them, such as NaN, is not looked at."""
    tile = kernel.Tile(16, 64, 4, 1, programs=8, descriptor=descriptor)
    q, keys = integers(4, 2, 1, 900, 80, HALF, device, most=1)
    q, keys, scales = int8_of(q, keys) if int8 else (q, keys, None)
    (keys if scales is None else scales)[count:] = torch.nan
    there = torch.tensor([count], device=device)
    here = q, keys[:count], 4, None if scales is None else scales[:count]
    for top in (
        kernel.topk_scan(q, keys, 4, scales, there, tile),
        scan(q, keys, 4, scales, there),
    ):
        assert not top.votes[count:].any()
        assert len(top.votes) == len(top.best) == 900
        assert torch.equal(top.best[count:], torch.full_like(top.best[count:], -torch.inf))
        check(top._replace(votes=top.votes[:count], best=top.best[:count]), *here)


@pytest.mark.parametrize(
    ("size", "dtype"), covering(SIZES[:3], [HALF, torch.float32], meet=1), ids=str
)
def test_int8_keys(kernel, device, size, dtype):
    q, keys, scales = int8_of(*integers(*size, dtype, device))
    check(kernel.topk_scan(q, keys, 4, scales), q, keys, 4, scales)
    check(scan(q, keys, 4, scales), q, keys, 4, scales)


def test_real_scores_are_the_highest(kernel, device, random_states):
    q, keys = random_states(4, 2, 3, 900, 64, device=device)
    keys = keys.transpose(0, 1)
    expected = definition(q, keys, 4)[0]
    for top in (kernel.topk_scan(q, keys, 4), scan(q, keys, 4)):
        chosen = logits_of(q, keys).gather(-1, top.keys)
        assert bool((chosen >= expected[..., 3:] - 1e-4 * expected[..., 3:].abs()).all())
        assert torch.allclose(top.scores.double(), chosen, rtol=1e-5)
        check_votes(top, 900)


def test_of_identical_keys_the_earliest(kernel, device):
    q, keys = integers(2, 1, 2, 1200, 64, HALF, device)
    keys[:, :] = keys[:1]
    keys[777] = 0  # a zero wins where the others' score is negative
    for top in (kernel.topk_scan(q, keys, 4), scan(q, keys, 4)):
        check(top, q, keys, 4)
        assert {(0, 1, 2, 3), (777, 0, 1, 2)} >= {
            tuple(row) for row in top.keys.view(-1, 4).tolist()
        }


@pytest.mark.parametrize("sets", [1, 2, 4])
def test_sets_of_a_tile_with_equal_maxima(kernel, device, sets):
    q = torch.zeros(1, 1, 16, dtype=HALF, device=device)
    q[..., 0] = 1
    keys = torch.zeros(1000, 1, 16, dtype=HALF, device=device)
    keys[[300, 700], 0, 0] = torch.tensor([8, 9], dtype=HALF, device=device)
    # Of a tile of 128 in four sets: of the sets 3, 0, 1 and 0, then of a later tile.
    keys[[390, 392, 394, 400, 600], 0, 0] = 5
    tile = kernel.Tile(16, 128, 4, 1, programs=1, sets=sets)
    top = kernel.topk_scan(q, keys, 4, tile=tile)
    assert top.keys.tolist() == [[[700, 300, 390, 392]]]
    check(top, q, keys, 4)


@pytest.mark.parametrize("many", [True, False])
def test_however_the_second_pass_reads(kernel, device, monkeypatch, many):
    monkeypatch.setattr(kernel, "FEW", 0 if many else 1024)
    q, keys = integers(4, 2, 1, 600, 80, HALF, device, most=1)
    check(kernel.topk_scan(q, keys, 4), q, keys, 4)
    q, keys, scales = int8_of(q, keys)
    check(kernel.topk_scan(q, keys, 4, scales), q, keys, 4, scales)


def test_no_score_is_positive(kernel, device):
    q = torch.ones(2, 1, 64, dtype=HALF, device=device)
    keys = -integers(1, 1, 1, 300, 64, HALF, device)[1].abs()
    check(kernel.topk_scan(q, keys, 4), q, keys, 4)


def test_a_slice_of_a_larger_buffer(kernel, device):
    buffer = integers(1, 3, 1, 800, 64, HALF, device)[1]
    q, keys = integers(2, 2, 2, 1, 64, HALF, device)[0], buffer[101:503, 1:]
    assert not keys.is_contiguous()
    check(kernel.topk_scan(q, keys, 4), q, keys, 4)
    check(scan(q, keys, 4), q, keys, 4)
    tall = keys.transpose(0, 1).contiguous().transpose(0, 1)  # a head's keys together
    check(kernel.topk_scan(q, tall, 4), q, keys, 4)


def test_queries_in_the_order_of_tokens(kernel, device):
    q, keys = integers(4, 2, 5, 300, 64, HALF, device)
    turned = q.transpose(0, 1).contiguous().transpose(0, 1)  # as a layer's product has them
    assert not turned.is_contiguous()
    check(kernel.topk_scan(turned, keys, 4), q, keys, 4)
    spread = torch.stack([q, q], dim=-1)[..., 0]
    check(kernel.topk_scan(spread, keys, 4), q, keys, 4)


def test_keys_that_no_descriptor_takes(kernel, device):
    tile = kernel.Tile(16, 128, 4, 1, programs=6, descriptor=True)
    q, keys = integers(2, 2, 1, 300, 65, HALF, device)
    q, keys = q[..., :64], keys[..., 1:]
    check(kernel.topk_scan(q, keys, 4, tile=tile), q, keys, 4)


def test_a_query_head_reads_its_groups_key_head(kernel, device):
    q, keys = integers(4, 2, 2, 300, 64, HALF, device)
    other = definition(q.view(2, 2, 2, 64).transpose(0, 1).reshape(q.shape), keys, 4)[1]
    other = other.view(2, 2, 2, 4).transpose(0, 1).reshape(4, 2, 4)  # head h reads h % G
    for top in (kernel.topk_scan(q, keys, 4), scan(q, keys, 4)):
        check(top, q, keys, 4)
        assert not torch.equal(top.keys, other)
        assert torch.equal(top.keys[0], other[0])  # head 0 reads key head 0 either way


def test_what_it_refuses(kernel):
    q, keys = integers(2, 1, 3, 9, 64)
    assert kernel.refusal(q, keys, 4) is None
    assert "best 4 keys, not 5" in kernel.refusal(q, keys, 5)
    assert "int32 count" in kernel.refusal(q, keys, 4, None, torch.ones(1, dtype=torch.int32))
    assert "none are wanted" in kernel.refusal(q, keys, 0)
    assert "no keys" in kernel.refusal(q, keys[:0], 4)
    assert "float64" in kernel.refusal(q.double(), keys.double(), 4)
    assert "float16" in kernel.refusal(q, keys.half(), 4)
    assert "int8 keys and no scales" in kernel.refusal(q, keys.to(torch.int8), 4)
    _, small, scales = int8_of(q, keys)
    assert kernel.refusal(q, small, 4, scales) is None
    assert "float32 scales" in kernel.refusal(q, small, 4, scales.float())
    assert "257" in kernel.refusal(*integers(1, 1, 2, 3, 257), 4)
    assert "interpreter" in kernel.refusal(q.bfloat16(), keys.bfloat16(), 4)


def test_the_door(device, monkeypatch):
    q, keys = integers(2, 1, 2, 200, 64, HALF, device)
    for choice in choice_module.CHOICES:
        monkeypatch.setenv(choice_module.VARIABLE, choice)
        check(door.topk_scan(q, keys, 4), q, keys, 4)
        check(door.topk_scan(q, keys, 6), q, keys, 6)
        given = *int8_of(q, keys)[:2], 4, int8_of(q, keys)[2]
        check(door.topk_scan(*given), *given)


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, HALF, torch.float32], ids=str)
@pytest.mark.parametrize("D", [64, 80, 96, 128, 256])
@pytest.mark.parametrize(("T", "N"), [(1, 70_001), (9, 300), (512, 9000)])
def test_compiled_it_is_the_definition(kernel, dtype, D, T, N):
    q, keys = integers(16, 4, T, N, D, dtype, "cuda", most=2)
    check(kernel.topk_scan(q, keys, 4), q, keys, 4)
    q, keys, scales = int8_of(q, keys)
    check(kernel.topk_scan(q, keys, 4, scales), q, keys, 4, scales)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, HALF], ids=str)
@pytest.mark.parametrize("T", [1, 512])
def test_real_sizes(kernel, random_states, dtype, T):
    q, keys = random_states(16, 4, T, 20_001, 128, dtype, "cuda")
    keys = keys.transpose(0, 1).contiguous()
    top, expected = kernel.topk_scan(q, keys, 4), definition(q, keys, 4)[0][..., 3:]
    chosen = logits_of(q, keys).gather(-1, top.keys)
    assert bool((chosen >= expected - 1e-3 * expected.abs()).all())
    check_votes(top, len(keys))
    again = kernel.topk_scan(q, keys, 4)
    assert all(torch.equal(one, other) for one, other in zip(top, again, strict=True))


@pytest.mark.gpu
def test_more_keys_than_32_bits_address(kernel):
    N, G, D = 4_300_000, 4, 128  # 2.2e9 entries
    keys = torch.zeros(N, G, D, dtype=torch.bfloat16, device="cuda")
    keys[-1] = 1
    q = torch.ones(8, 2, D, dtype=torch.bfloat16, device="cuda")
    top = kernel.topk_scan(q, keys, 4)
    assert top.keys.view(-1, 4).unique(dim=0).tolist() == [[N - 1, 0, 1, 2]]
    assert int(top.votes[-1]) == 16
    assert float(top.best[-1]) == 128.0
