"""The kernel of the attention mass against its definition in float64, on odd sizes."""

import math

import pytest
import torch
from sampled import covering

from longctx.core.model.attention import causal_attention_lse
from longctx.kernels import door

reference = door.attention_mass.definition

WITHIN = 1e-5  # relative, of each key's mass: sums of float32

# H, G, W, S, D
SIZES = [
    (4, 2, 5, 133, 64),  # S no multiple of a block
    (2, 2, 128, 200, 80),  # W of the paper, no groups
    (4, 1, 1, 77, 96),  # one query
    (6, 2, 16, 16, 128),  # no cache: S = W
    (3, 1, 10, 70, 256),  # the largest head dimension
    (2, 1, 5, 2100, 16),  # more keys than one span of the log-sum-exp
    (8, 4, 33, 35, 8),  # a head dimension under the matrix units'
]


@pytest.fixture
def kernel(device):
    from longctx.kernels import attention_mass

    return attention_mass


def truth(q, k, scale):
    return reference(q.double(), k.double(), scale)


def lse_of(q, k, scale):
    """(H, W): log-sum-exps of the last W queries by a masked softmax in float64."""
    (H, W, _), (G, S, _) = q.shape, k.shape
    logits = q.double() @ k.double().repeat_interleave(H // G, 0).transpose(1, 2) * scale
    future = torch.ones(W, S, dtype=torch.bool, device=q.device).triu(S - W + 1)
    return logits.masked_fill(future, -torch.inf).logsumexp(-1).float()


def worst(mass, expected):
    return float(((mass - expected).abs() / expected).max())


@pytest.mark.parametrize(
    ("size", "dtype"), covering(SIZES, [torch.float32, torch.float16], meet=1), ids=str
)
def test_it_is_the_definition(kernel, device, random_states, size, dtype):
    q, k = random_states(*size, dtype, device)
    scale = size[-1] ** -0.5
    expected = truth(q, k, scale)
    assert worst(kernel.attention_mass(q, k, scale), expected) < WITHIN
    assert worst(kernel.attention_mass(q, k, scale, lse_of(q, k, scale)), expected) < WITHIN


def test_a_query_head_reads_its_groups_key_head(kernel, device, random_states):
    q, k = random_states(6, 2, 7, 90, 64, device=device)
    mass = kernel.attention_mass(q, k, 0.3)
    for g in range(2):
        heads = [truth(q[h : h + 1], k[g : g + 1], 0.3)[0] for h in range(3 * g, 3 * g + 3)]
        assert worst(mass[g], sum(heads)) < WITHIN
    interleaved = q.unflatten(0, (3, 2)).transpose(0, 1).flatten(0, 1)
    assert worst(kernel.attention_mass(interleaved, k, 0.3), truth(q, k, 0.3)) > 0.1


def test_no_query_sees_the_future(kernel, device, random_states):
    q, k = random_states(2, 1, 9, 50, 64, device=device)
    last = truth(q[:, -1:], k, 0.125)[0, -1]  # the last key is seen by the last query alone
    assert float(kernel.attention_mass(q, k, 0.125)[0, -1]) == pytest.approx(float(last), rel=1e-5)


def test_all_attention_is_received(kernel, device, random_states):
    q, k = random_states(8, 2, 20, 150, 80, torch.float16, device)
    received = kernel.attention_mass(q, k, 0.1).sum(dim=1)
    assert received.tolist() == pytest.approx([20 * 4, 20 * 4], rel=1e-5)


def test_slices_and_large_logits(kernel, device, random_states):
    q, k = random_states(4, 2, 60, 140, 64, device=device)
    q, k = q[:, -30:], k.transpose(0, 1).contiguous().transpose(0, 1)
    assert not q.is_contiguous()
    assert not k.is_contiguous()
    mass, expected = kernel.attention_mass(q, k, 4.0), truth(q, k, 4.0)  # logits of about ±100
    assert torch.allclose(mass.double(), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("sinks", [False, True])
def test_soft_caps_and_sinks(kernel, device, random_states, softcap, sinks):
    q, k = random_states(4, 2, 20, 170, 64, device=device)
    more = {"softcap": softcap, "sinks": torch.linspace(-1, 3, 4).to(device) if sinks else None}
    given = more | {"sinks": more["sinks"].double() if sinks else None}
    expected = reference(q.double(), k.double(), 0.2, **given)
    assert worst(kernel.attention_mass(q, k, 0.2, **more), expected) < WITHIN
    # With the log-sum-exps of attention, which has counted the sinks.
    *_, lse = (None, door.band_attention(q, k, k, 0.2, 170, **more)[1])
    if lse is not None:
        assert worst(kernel.attention_mass(q, k, 0.2, lse, **more), expected) < WITHIN
    if softcap or sinks:
        assert worst(truth(q, k, 0.2), expected) > 0.01


def test_the_same_bits_every_time(kernel, device, random_states):
    q, k = random_states(4, 2, 50, 300, 64, torch.float16, device)
    assert torch.equal(kernel.attention_mass(q, k, 0.1), kernel.attention_mass(q, k, 0.1))


@pytest.mark.parametrize("seed", range(3))
def test_other_tokens_are_kept_only_where_masses_tie(kernel, device, random_states, seed):
    q, k = random_states(4, 2, 16, 400 + seed, 64, device=device)
    expected, mass = truth(q, k, 0.125), kernel.attention_mass(q, k, 0.125)
    kept, ours = (door.heaviest_tokens(m, 100, 8, 8).tolist() for m in (expected, mass))
    for g in range(2):
        cut = expected[g][8:-8].sort(descending=True).values[100 - 16 - 1]
        for token in set(kept[g]) ^ set(ours[g]):
            assert abs(expected[g][token] - cut) <= 1e-6
    assert set(kept[0]) != set(kept[1])


def test_what_it_refuses(kernel, random_states):
    q, k = random_states(2, 1, 3, 9, 64)
    assert kernel.refusal(q, k, 0.1) is None
    assert "float64" in kernel.refusal(q.double(), k.double(), 0.1)
    assert "float16" in kernel.refusal(q, k.half(), 0.1)
    assert "257" in kernel.refusal(*random_states(1, 1, 2, 3, 257), 0.1)
    assert "interpreter" in kernel.refusal(q.bfloat16(), k.bfloat16(), 0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("D", [64, 80, 96, 128, 256])
def test_real_sizes_with_the_log_sum_exps_of_attention(kernel, random_states, dtype, D):
    scale = D**-0.5
    q, k = random_states(32, 8, 2048, 5001, D, dtype, "cuda")
    _, lse = causal_attention_lse(q, k, k, scale)
    q, lse = q[:, -128:], lse[:, -128:]
    expected = reference(q.double(), k.double(), scale)
    within = WITHIN if dtype == torch.float32 else 5e-5  # matrix units round sums down
    assert worst(kernel.attention_mass(q, k, scale), expected) < within
    assert (lse - lse_of(q, k, scale)).abs().max() < 1e-3
    assert worst(kernel.attention_mass(q, k, scale, lse), expected) < 2e-3


@pytest.mark.gpu
def test_more_keys_than_32_bits_address(kernel):
    G, S, D = 8, 1 << 22, 80  # 2.7e9 entries
    k = torch.zeros(G, S, D, dtype=torch.bfloat16, device="cuda")
    k[-1, -1] = 1
    q = torch.ones(8, 4, D, dtype=torch.bfloat16, device="cuda")
    mass = kernel.attention_mass(q, k, 0.125)
    # The last key's logit is 80 / 8 = 10 and the last query's alone; all others are 0.
    expected = math.e**10 / (math.e**10 + S - 1)
    assert float(mass[-1, -1]) == pytest.approx(expected, rel=1e-3)
    assert float(mass[-1, 0]) == pytest.approx(4 / S, rel=1e-2)
