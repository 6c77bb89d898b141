"""SnapKV against its literal transcription, its limits and mutations of itself."""

import numpy as np
import pytest
import snapkv_transcription as transcription
import torch
from answer_runs import begin, run
from decoded import exact, step, weights_of

from longctx.core.common.errors import UsageError
from longctx.core.decode.policies import choose, dense, snapkv
from longctx.core.decode.policies.snapkv import Options
from longctx.kernels import attention_mass_ref
from longctx.kernels.best_tokens_ref import best_tokens

ORDER = np.random.default_rng(7).permutation(400).tolist()  # no token twice: no ties by chance
IDS, ANSWER = ORDER[:90], ORDER[200:220]
OPTIONS = Options(budget=24, window=8, pool=7)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("llama-default", torch.float64, vocab_size=400)


def kept(policy):
    """The tokens that each layer keeps, for each key/value head."""
    return [cache._places.tolist() for cache in policy._caches.values()]


def ours(model, options=OPTIONS, ids=IDS):
    with exact():
        return run(model, snapkv, options, ids, ANSWER)


@pytest.fixture(scope="module")
def expected(model):
    o = OPTIONS
    return transcription.decode(weights_of(model), IDS, ANSWER, o.budget, o.window, o.pool)


def test_it_is_the_transcription(model, expected):
    logits, policy = ours(model)
    assert kept(policy) == expected[1]
    assert np.abs(logits - np.array(expected[0])).max() < 1e-5


@pytest.mark.parametrize("options", [Options(20, 1, 1), Options(50, 32, 3)])
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama-one-kv-head"])
def test_other_models_are_the_transcription(make_model, name, options):
    model = make_model(name, torch.float64, vocab_size=400, num_hidden_layers=2)
    given = weights_of(model), IDS, ANSWER[:4], options.budget, options.window, options.pool
    logits, chosen = transcription.decode(*given)
    found, policy = ours(model, options)
    assert kept(policy) == chosen
    assert np.abs(found[:5] - np.array(logits)).max() < 1e-5


def test_the_comparison_is_not_vacuous(model, expected):
    sets = [tuple(head) for layer in expected[1] for head in layer]
    assert len({*sets}) == len(sets) == 8
    assert all(len(head) == OPTIONS.budget < len(IDS) / 2 for head in sets)
    with exact():
        exactly, _ = run(model, dense, dense.Options(), IDS, ANSWER)
    assert np.abs(np.array(expected[0]) - exactly)[1:].max(axis=1).min() > 1e-3


def test_one_token_above_the_budget_is_left_out(model):
    with exact():
        exactly, _ = run(model, dense, dense.Options(), IDS, ANSWER)
    for budget, equal in ((len(IDS), True), (len(IDS) - 1, False)):
        difference = np.abs(ours(model, Options(budget, 8))[0] - exactly)[1:].max(axis=1)
        assert difference.max() < 1e-12 if equal else difference.min() > 1e-9


@pytest.mark.parametrize("name", ["qwen2-windows", "mistral-window", "gemma3"])
def test_layers_with_a_window_keep_it(make_model, name):
    model = make_model(name, vocab_size=400)
    with exact():
        exactly, _ = run(model, dense, dense.Options(), IDS, ANSWER)
    logits, policy = ours(model)
    windows = [cache.layer.window for cache in policy._caches.values()]
    last = list(range(len(IDS) - 24, len(IDS)))
    for window, heads in zip(windows, kept(policy), strict=True):
        assert window is None or heads == [last] * len(heads)
    difference = np.abs(logits - exactly).max()
    assert difference < 1e-4 if None not in windows else difference > 1e-3
    seen = sum(24 if w else OPTIONS.budget + (len(ANSWER) + 1) / 2 for w in windows)
    assert policy.spent().attended == seen / len(windows)


@pytest.mark.parametrize("name", ["llama-dynamic", "llama-longrope"])
def test_what_is_kept_keeps_its_position_when_keys_are_turned_anew(make_model, name):
    """The prompt ends below the first length of the embedding, and the answer beyond it."""
    model = make_model(name, torch.float64, vocab_size=400)
    ids = IDS[: 60 if name == "llama-dynamic" else 28]
    with exact():
        decoder, policy, _ = begin(model, snapkv, OPTIONS, ids, len(ANSWER))
        plain = {index: cache._plain.clone() for index, cache in policy._caches.items()}
        before = policy._caches[0].keys.clone()
        for token in ANSWER:
            step(decoder, policy, token)
        total = len(ids) + len(ANSWER)
        for index, cache in policy._caches.items():
            for g, places in enumerate(cache._places):
                expected = cache.layer.rotate(plain[index][g : g + 1, :24], places, total)[0]
                assert (cache.keys[g, :24] - expected).abs().max() < 1e-12
            new = cache._plain[:, 24 : 24 + len(ANSWER)]
            expected = cache.layer.rotate(new, slice(len(ids), total), total)
            assert (cache.keys[:, 24 : 24 + len(ANSWER)] - expected).abs().max() < 1e-12
    assert (before[:, :24] - policy._caches[0].keys[:, :24]).abs().max() > 1e-3
    assert policy.kind is None


def test_the_rest_of_the_prompt_is_let_go_of(model):
    room = -(-(len(IDS) + len(ANSWER)) // 16) * 16 - len(IDS)
    _, policy = ours(model)
    for cache in policy._caches.values():
        for x in (cache.keys, cache.values):
            assert x.shape[1] == OPTIONS.budget + room
            assert x.untyped_storage().nbytes() == x.nbytes
    spent = policy.spent()
    assert (spent.held, spent.refreshes) == (OPTIONS.budget + len(ANSWER), None)
    assert spent.attended == OPTIONS.budget + (len(ANSWER) + 1) / 2
    assert policy.kind == "snapkv"


@pytest.mark.parametrize("wrong", ["window=0", "window=4096", "pool=2", "pool=-1", "stride=2"])
def test_options_that_cannot_be_are_refused(wrong):
    assert choose("snapkv", {}).options == Options()
    with pytest.raises(UsageError, match=wrong.split("=")[0]):
        choose(f"snapkv:{wrong}", {})


# --- mutations ---


def another_map(q, k, scale, **more):
    (H, *_), G = q.shape, len(k)
    order = torch.arange(H).view(H // G, G).T.flatten()  # head h reads h % G
    return attention_mass_ref.attention_mass(q[order], k, scale)


def last_query(q, k, scale, **more):
    return attention_mass_ref.attention_mass(q[:, -1:], k, scale)


def largest_head(q, k, scale, **more):
    parts = [attention_mass_ref.attention_mass(q[h::2], k, scale) for h in range(2)]
    return torch.maximum(*parts)


def unpooled(weights, count, budget, pool):
    return best_tokens(weights, count, budget, 1)


def pooled_over_all(mass, count, budget, pool):
    """With the last tokens' own mass beside them."""
    wide = torch.cat([mass, mass.amax(dim=1, keepdim=True)], dim=1)
    best = best_tokens(wide, count + 1, budget + 1, pool)
    return torch.stack([row[row < int(count)][:budget] for row in best])


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("attention_mass", another_map),
        ("attention_mass", last_query),
        ("attention_mass", largest_head),
        ("best_tokens", unpooled),
        ("best_tokens", pooled_over_all),
    ],
)
def test_mutations_are_noticed(model, expected, monkeypatch, name, mutant):
    monkeypatch.setattr(snapkv, name, mutant)
    logits, policy = ours(model)
    assert kept(policy) != expected[1]
    assert np.abs(logits - np.array(expected[0])).max() > 1e-3
