"""Recycled Attention against its literal transcription, its limits and mutations of itself."""

from dataclasses import replace

import numpy as np
import pytest
import recycled_transcription as transcription
import torch
from answer_runs import begin, run
from decoded import exact, step, weights_of

from longctx.core.common.errors import UsageError
from longctx.core.decode.policies import choose, dense, recycled
from longctx.core.decode.policies.recycled import Options
from longctx.core.kv import recycled_cache as cache_module
from longctx.core.kv import refresh
from longctx.core.kv.recycled_cache import Places
from longctx.kernels import best_tokens_ref, cached_attention_ref
from longctx.kernels.best_tokens_ref import best_tokens

ORDER = np.random.default_rng(7).permutation(400).tolist()  # no token twice: no ties by chance
IDS, ANSWER = ORDER[:80], ORDER[200:260]
OPTIONS = Options(budget=20, stride=7)
DYNAMIC = replace(OPTIONS, similarity=0.8, compare=3)
CASES = {
    "stride": OPTIONS,
    "no-pool": replace(OPTIONS, pool=1),
    "runs-out": replace(OPTIONS, budget=9, stride=50),
    "dynamic": DYNAMIC,
    "dynamic-runs-out": replace(DYNAMIC, budget=5, compare=4),
    "few": replace(OPTIONS, budget=90, stride=30),  # more than the prompt has
}


def make(make_model, name, **changes):
    return make_model(name, torch.float64, vocab_size=400, **{"num_hidden_layers": 2} | changes)


@pytest.fixture(scope="module")
def model(make_model):
    return make(make_model, "llama-default")


@pytest.fixture(scope="module")
def watched(model):
    """A run with the usual options."""
    return ours(model, OPTIONS)


class Watch:
    """Notes what a policy chose and attended to, as the transcription does."""

    def __init__(self):
        self.step, self.full, self.chosen, self.attended = 0, [], {}, {}

    def __call__(self, policy):
        for layer, cycle in policy.cycles.items():
            at, tokens = (self.step, layer), len(IDS) + self.step
            if cycle.schedule.since == 0:
                count = min(cycle.recycled.keys.shape[1] - 1, tokens)
                self.chosen[at] = cycle.recycled.index[:, :count].tolist()
            if self.step and cycle.schedule.since == 0:
                self.full.append(at)
                self.attended[at] = [list(range(tokens))] * len(cycle.recycled.keys)
            elif self.step:
                self.attended[at] = self.found(policy, layer, tokens)
        self.step += 1

    def found(self, policy, layer, tokens):
        """The tokens whose keys and values are those of the recycled cache's entries in use."""
        cache, own = policy._caches[layer], policy.cycles[layer].recycled
        count = int(policy._places.counts[policy._rows[layer]])
        both = [torch.cat(x, dim=-1) for x in ((cache.keys, cache.values), (own.keys, own.values))]
        same = (both[1][:, :count, None] == both[0][:, None, :tokens]).all(dim=-1)
        assert (same.sum(dim=-1) == 1).all()
        return same.long().argmax(dim=-1).sort(dim=1).values.tolist()


def ours(model, options, answer=ANSWER):
    watch = Watch()
    with exact():
        logits, policy = run(model, recycled, options, IDS, answer, watch)
    return logits, policy, watch


def theirs(model, options, answer=ANSWER, windows=None):
    o = options
    settings = transcription.Settings(o.budget, o.stride, o.pool, o.similarity, o.compare, windows)
    return transcription.decode(weights_of(model), IDS, answer, settings)


# --- the transcription ---


def require_same(found, expected):
    logits, _, watch = found
    assert watch.full == expected.full
    assert watch.chosen == expected.chosen
    assert watch.attended == expected.attended
    assert np.abs(logits - np.array(expected.logits)).max() < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_transcription(model, case):
    require_same(ours(model, CASES[case]), theirs(model, CASES[case]))


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama-one-kv-head"])
def test_other_models_are_the_transcription(make_model, name):
    model = make(make_model, name)
    require_same(ours(model, OPTIONS), theirs(model, OPTIONS))


def test_layers_with_a_window_keep_it_and_choose_nothing(make_model):
    model = make(make_model, "qwen2-windows", max_window_layers=1, num_hidden_layers=3)
    found = ours(model, OPTIONS)
    assert {*found[1].cycles} == {0}
    require_same(found, theirs(model, OPTIONS, windows=(None, 24, 24)))


def test_a_model_with_windows_alone_decodes_as_ever(make_model):
    model = make(make_model, "mistral-window")
    found, policy, _ = ours(model, OPTIONS)
    with exact():
        expected, _ = run(model, dense, dense.Options(), IDS, ANSWER)
    assert np.array_equal(found, expected)
    assert (policy.kind, policy.spent().attended) == ("recycled", 24)


def test_the_comparison_is_not_vacuous(model, watched):
    logits, _, watch = watched
    with exact():
        expected, _ = run(model, dense, dense.Options(), IDS, ANSWER)
    for number, _ in watch.full:
        sets = [tuple(sorted(head)) for layer in (0, 1) for head in watch.chosen[number, layer]]
        assert len({*sets}) == len(sets) == 4  # layers and heads choose for themselves
    for (number, layer), heads in watch.attended.items():
        assert (number, layer) in watch.full or len(heads[0]) <= (len(IDS) + number) / 2
    assert np.abs(logits - expected)[1:].max(axis=1).min() > 1e-3


# --- limits ---


def test_beyond_the_budget_they_are_not(model):
    """A step sees one entry more than the budget, which counts what is kept after it."""
    with exact():
        expected, _ = run(model, dense, dense.Options(), IDS, ANSWER[:6])
    for budget, equal in ((85, 6), (84, 5), (83, 4), (80, 1)):
        logits, *_ = ours(model, replace(OPTIONS, budget=budget, stride=50), ANSWER[:6])
        difference = np.abs(logits - expected).max(axis=1)
        assert difference[: equal + 1].max() < 1e-12
        assert equal == 6 or difference[equal + 1 :].min() > 1e-9


@pytest.mark.parametrize("name", ["llama-dynamic", "llama-longrope", "phi3-longrope", "gemma3"])
def test_any_rotary_embedding_will_do(make_model, name):
    model = make_model(name, vocab_size=400)
    expected, _ = run(model, dense, dense.Options(), IDS[:56], ANSWER[:12])
    found, _ = run(model, recycled, replace(OPTIONS, budget=80), IDS[:56], ANSWER[:12])
    assert np.abs(found - expected).max() < 1e-4
    some, _ = run(model, recycled, OPTIONS, IDS[:56], ANSWER[:12])
    assert np.abs(some - expected)[1:].max() > 1e-3


def test_keys_that_follow_a_length_are_recycled_alike(make_model):
    """Below its first length a dynamic embedding is the default one."""
    models = [make(make_model, name) for name in ("llama-dynamic", "llama-default")]
    with exact():
        grown, plain = (run(m, recycled, OPTIONS, IDS[:30], ANSWER[:30]) for m in models)
    assert np.abs(grown[0] - plain[0]).max() < 1e-9
    assert (grown[1].kind, plain[1].kind) == (None, "recycled")
    assert grown[1].spent() == plain[1].spent()


# --- what is chosen ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pool", [1, 3, 7])
def test_the_best_tokens_are_those_of_a_sort_by_the_rule(dtype, pool):
    draws = np.random.default_rng(pool)
    for levels in (2, 4, 40):  # few levels: ties of every sort
        for count, size, budget in ((50, 64, 20), (50, 50, 49), (9, 40, 12), (5, 5, 30), (1, 3, 2)):
            weights = torch.from_numpy(draws.integers(0, levels, (3, size)) / levels).to(dtype)
            found = best_tokens(weights, torch.tensor([count]), budget, pool).tolist()
            for row, tokens in zip(weights.tolist(), found, strict=True):
                expected = transcription.best(row[:count], pool)[:budget]
                assert tokens[: len(expected)] == expected
                assert len({*tokens}) == len(tokens) == min(budget, size)


def test_of_a_pooled_plateau_the_larger_then_the_earlier_is_taken():
    weights = torch.zeros(1, 30)
    weights[0, [10, 11, 13, 20]] = torch.tensor([0.2, 0.1, 0.1, 0.3])
    order = [20, 17, 18, 19, 21, 22, 23, 10, 11, 13, 7, 8, 9, 12]
    count = torch.tensor([30])
    assert best_tokens(weights, count, 14, 7).tolist() == [order]
    for budget in range(1, 14):  # the cut inside the plateau
        assert best_tokens(weights, count, budget, 7).tolist() == [order[:budget]]
    assert best_tokens(weights, count, 4, 1).tolist() == [[20, 10, 11, 13]]


def test_neighbours_are_not_sought_beyond_the_last_token():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.0, 9.0, 9.0]])
    assert best_tokens(weights, torch.tensor([4]), 6, 3).tolist() == [[2, 1, 3, 0, 4, 5]]


def test_a_group_counts_by_its_largest_head_not_by_their_mean():
    weights = torch.tensor([[0.6, 0.39, 0.01], [0.01, 0.39, 0.6]], dtype=torch.float64)
    keys, out = torch.eye(3, dtype=torch.float64)[None], torch.empty(1, 3, dtype=torch.float64)
    given = weights.log()[:, None], keys, keys, torch.tensor([3]), 1.0
    cached_attention_ref.cached_attention(*given, weights=out)
    assert best_tokens(out, torch.tensor([3]), 2, 1).tolist() == [[0, 2]]
    assert weights.mean(dim=0).argmax() == 1


@pytest.mark.parametrize(
    ("count", "slots", "counts"),
    [
        (9, [5, 4, 3, 2, 1], [6, 6, 6, 6, 6]),
        (5, [5, 4, 3, 2, 1], [6, 6, 6, 6, 6]),
        (3, [3, 4, 5, 2, 1], [4, 5, 6, 6, 6]),
    ],
)
def test_the_worst_make_room_first_and_tokens_since_stay(count, slots, counts):
    places = Places(2, 5, torch.device("cpu"))
    places.next()
    for _ in range(2):  # the second time over what the first has left
        for layer in range(2):
            places.chosen(layer, torch.tensor([count]))
        found = []
        for _ in slots:
            places.next()
            found.append((places.slots[1].item(), places.counts[1].item()))
        assert found == [*zip(slots, counts, strict=True)]


def test_drops_are_the_reverse_of_choosing(watched):
    watch = watched[2]
    for at, chosen in watch.chosen.items():
        for since in range(1, OPTIONS.stride):
            step = at[0] + since
            for head, attended in zip(chosen, watch.attended.get((step, at[1]), ()), strict=False):
                new = range(len(IDS) + at[0], len(IDS) + step)
                assert attended == sorted([*head[: OPTIONS.budget - since + 1], *new])


def test_what_came_since_the_last_full_step_can_be_chosen(watched):
    watch = watched[2]
    late = [t for at in watch.full for head in watch.chosen[at] for t in head if t >= len(IDS)]
    own = [len(IDS) + at[0] - 1 in head for at in watch.full for head in watch.chosen[at]]
    assert {*late} & {*range(len(IDS), len(IDS) + 6)}  # between the first two full steps
    assert any(own)  # a full step's own token


# --- when it is chosen ---


def steps_of(watch, layer):
    return [step for step, index in watch.full if index == layer]


def test_when_the_recycled_ones_run_out_all_is_attended_to(model):
    options = replace(OPTIONS, budget=4, stride=50)
    _, policy, watch = ours(model, options, ANSWER[:21])
    assert steps_of(watch, 0) == steps_of(watch, 1) == [5, 10, 15, 20]
    assert policy.spent().refreshes == 4
    last = watch.attended[9, 1]  # the best one is left, and four tokens since
    assert last == [[head[0], *range(85, 89)] for head in watch.chosen[5, 1]]


@pytest.mark.parametrize("budget", [20, 5])
def test_a_similarity_of_one_is_the_fixed_stride(model, budget):
    fixed = replace(OPTIONS, budget=budget, stride=7)
    always = replace(fixed, stride=1000, similarity=1.0, compare=7)
    one, other = (ours(model, options, ANSWER[:30]) for options in (fixed, always))
    assert np.array_equal(one[0], other[0])
    assert one[2].full == other[2].full
    assert one[2].chosen == other[2].chosen


def test_layers_choose_anew_at_steps_of_their_own(make_model):
    model = make(make_model, "qwen2", num_hidden_layers=4)
    _, policy, watch = ours(model, DYNAMIC)
    schedules = {tuple(steps_of(watch, layer)) for layer in range(4)}
    assert len(schedules) > 1
    counts = [len(steps_of(watch, layer)) for layer in range(4)]
    assert policy.spent().refreshes == sum(counts) / 4
    assert 0 < sum(counts) < 4 * len(ANSWER) // DYNAMIC.compare


def test_a_stride_of_one_is_dense(make_model):
    model = make_model("llama-default", vocab_size=400)
    expected, _ = run(model, dense, dense.Options(), IDS, ANSWER[:9])
    found, policy = run(model, recycled, replace(OPTIONS, stride=1), IDS, ANSWER[:9])
    assert np.abs(found - expected).max() < 1e-4
    assert (policy.kind, policy.spent().refreshes) == ("full", 9)


def test_the_kind_of_a_step_is_known_before_it(make_model):
    model = make_model("llama-default", vocab_size=400)
    for options, expected in (
        (replace(OPTIONS, stride=3), ["recycled", "recycled", "full"] * 3),
        (replace(DYNAMIC, similarity=1.0), ["recycled", "recycled", None] * 3),
    ):
        kinds = []
        run(model, recycled, options, IDS, ANSWER[:9], lambda p, kinds=kinds: kinds.append(p.kind))
        assert kinds == [*expected, expected[0]]


def seen_by_mask(q, keys, values, count, scale, *_, weights=None):
    """`cached_attention` of the test's models, without waiting for `count`."""
    (H, _, D), G, C = q.shape, len(keys), keys.shape[1]
    logits = torch.matmul(q.view(G, H // G, D), keys.mT) * scale
    logits = logits.masked_fill(torch.arange(C) >= count, -torch.inf)
    received = torch.softmax(logits, dim=-1)
    if weights is not None:
        weights.copy_(received.amax(dim=1))
    seen = torch.where((torch.arange(C) < count)[:, None], values, 0.0)
    return torch.matmul(received, seen).view(H, 1, -1)


def test_a_step_that_has_a_kind_never_waits_for_the_device(make_model, monkeypatch):
    def waits(*_):
        raise AssertionError("a step waits for the device")

    def by_mask(*given):
        return seen_by_mask(*given[:5], weights=given[8])

    model = make_model("llama-default", vocab_size=400)
    expected, _ = run(model, recycled, replace(OPTIONS, stride=3), IDS, ANSWER[:9])
    decoder, policy, _ = begin(model, recycled, replace(OPTIONS, stride=3), IDS, 9)
    monkeypatch.setattr(refresh, "cached_attention", by_mask)
    monkeypatch.setattr("longctx.core.kv.prompt.cached_attention", by_mask)
    # Tokens from the host are looked at there; those of an answer are on the device.
    monkeypatch.setattr(type(decoder), "require_known", lambda *_: None)
    for name in ("__int__", "__bool__", "__float__", "item", "tolist", "nonzero", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    found = [step(decoder, policy, token) for token in ANSWER[:9]]
    monkeypatch.undo()
    assert np.abs(np.array(found) - expected[1:]).max() < 1e-4


# --- what it takes ---


def test_what_was_attended_to_is_told(watched):
    _, policy, watch = watched
    entries = [len(heads[0]) for heads in watch.attended.values()]
    spent = policy.spent()
    assert spent.attended == sum(entries) / len(entries)
    assert spent.refreshes == len(ANSWER) // OPTIONS.stride
    assert spent.held == len(IDS) + len(ANSWER) + OPTIONS.budget


@pytest.mark.parametrize(
    "wrong", ["budget=0", "stride=0", "pool=0", "pool=4", "compare=0", "similarity=2", "window=3"]
)
def test_options_that_cannot_be_are_refused(wrong):
    assert choose("recycled", {}).options == Options()
    with pytest.raises(UsageError, match=wrong.split("=")[0]):
        choose(f"recycled:{wrong}", {})


# --- mutations ---


def another_map(q, keys, values, count, scale, *more):
    (H, *_), G = q.shape, len(keys)
    order = torch.arange(H).view(H // G, G).T.flatten()  # head h reads h % G
    out = torch.empty_like(q)
    out[order] = cached_attention_ref.cached_attention(q[order], keys, values, count, scale, *more)
    return out


def by_mean(q, keys, values, count, scale, *more):
    out = cached_attention_ref.cached_attention(q, keys, values, count, scale, *more)
    grouped = q.view(len(keys), -1, q.shape[-1])
    received = torch.softmax(grouped @ keys[:, : int(count)].mT * scale, dim=-1)
    more[-1][:, : int(count)] = received.mean(dim=1)
    return out


def ties_the_other_way(weights, count, budget, pool):
    found = []
    for row in weights[:, : int(count)].tolist():
        pooled = [max(row[max(0, j - pool // 2) : j + pool // 2 + 1]) for j in range(len(row))]
        order = sorted(range(len(row)), key=lambda j: (-pooled[j], row[j], -j))
        found.append(order[:budget])
    return torch.tensor(found)


def unpooled(weights, count, budget, pool):
    return best_tokens(weights, count, budget, 1)


def pooled_alone(own, pooled, K):
    """The cut inside a plateau goes by place, whatever the unpooled weights are."""
    return CHOSEN(pooled, pooled, K)


CHOSEN = best_tokens_ref._chosen


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (refresh, "cached_attention", another_map),
        (refresh, "cached_attention", by_mean),
        (cache_module, "best_tokens", unpooled),
        (cache_module, "best_tokens", ties_the_other_way),
        (best_tokens_ref, "_chosen", pooled_alone),
    ],
)
def test_mutations_are_noticed(model, watched, monkeypatch, where, name, mutant):
    expected, _, right = watched
    monkeypatch.setattr(where, name, mutant)
    logits, _, watch = ours(model, OPTIONS, ANSWER[:15])
    assert all(watch.chosen[at] != right.chosen[at] for at in ((0, 0), (0, 1)))
    assert np.abs(logits - expected[:16]).max() > 1e-3
