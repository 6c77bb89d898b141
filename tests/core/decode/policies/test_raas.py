"""RaaS against its literal transcription, at its limit, and against mutations of itself."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from decoded import (
    ORDER,
    WIDE,
    NeverWaiting,
    decode,
    exact,
    furthest,
    read,
    small,
    step,
    transcribed,
)
from raas_transcription import Settings

from longctx.core.common.errors import UsageError
from longctx.core.decode.policies import dense, raas
from longctx.core.decode.policies.raas import Options
from longctx.core.kv import pages as pages_module
from longctx.core.kv.page_stamps import Turnover
from longctx.core.kv.pages import known
from longctx.core.model.adapter import Decoder
from longctx.kernels import page_scores_ref
from longctx.kernels.door import PAGE

PROMPT, STEPS = 21, 128  # the prompt's second page is part-filled
BUDGET = Options(budget=6 * PAGE)
CASES = {
    "top": (BUDGET, WIDE),
    "alpha": (Options(budget=6 * PAGE, rule="alpha", alpha=0.15), WIDE),
    "reassigned": (BUDGET, PROMPT + 90),
}


def settings(options: Options, window: int = WIDE) -> Settings:
    alpha = options.alpha if options.rule == "alpha" else None
    return Settings(None, options.budget // PAGE, alpha, window)


def state(policy) -> list[dict[int, int]]:
    """Stamps by page number, of every layer and key/value head."""
    turnover = policy._turnover
    pairs = zip(turnover.order.flatten(0, 1), turnover.stamps.flatten(0, 1), strict=True)
    return [
        {n: s for n, s in zip(numbers.tolist(), stamps.tolist(), strict=True) if s >= 0}
        for numbers, stamps in pairs
    ]


@pytest.fixture(scope="module")
def model(make_model):
    return small(make_model)


@pytest.fixture(scope="module")
def runs(model):
    found = {}
    for name, (options, window) in CASES.items():
        states = []
        given = raas, options, PROMPT, STEPS, window
        logits = decode(model, *given, after=lambda policy, to=states: to.append(state(policy)))
        expected = transcribed(model, PROMPT, STEPS, settings(options, window))
        found[name] = logits, states, expected
    return found


@pytest.fixture(scope="module")
def everything(model):
    return decode(model, dense, dense.Options(), PROMPT, STEPS)


# --- against the transcription ---


@pytest.mark.parametrize("name", CASES)
def test_stamps_and_evictions_are_the_transcriptions(runs, name):
    _, states, expected = runs[name]
    for ours, theirs in zip(states, expected, strict=True):
        # Only pages of the answer: nobody asks how old the prompt's are.
        for mine, stamps in zip(ours, (theirs.stamps[key] for key in theirs.stamps), strict=True):
            assert mine.keys() == stamps.keys()
            assert {n: s for n, s in mine.items() if n > 1} == {
                n: s for n, s in stamps.items() if n > 1
            }


@pytest.mark.parametrize("name", CASES)
def test_logits_are_the_transcriptions(runs, name):
    logits, _, expected = runs[name]
    assert furthest(logits, expected) < 1e-9
    assert min(x.gap for x in expected) > 1e-9


@pytest.mark.parametrize("name", CASES)
def test_the_comparison_is_not_vacuous(runs, name, everything):
    logits, states, expected = runs[name]
    held = [set(head) for head in states[-1]]
    total = (PROMPT + PAGE - 1) // PAGE + (STEPS + PAGE - 1) // PAGE
    assert all(len(head) <= 6 < total for head in held)
    answered = 4 * PAGE  # at most are held of the answer
    assert STEPS - answered >= STEPS / 2
    evicted = [list(x.evicted.values()) for x in expected if x.evicted]
    assert any(len(set(numbers)) > 1 for numbers in evicted)  # layers and heads differ
    differences = [len(set(map(tuple, map(sorted, held)))) for held in states]
    assert max(differences) > 1
    assert furthest(logits, everything) > 1e-3


def test_the_rules_stamp_differently(runs):
    assert runs["top"][1] != runs["alpha"][1]


def test_reassigned_positions_change_the_answer_from_the_window_on(runs):
    there = CASES["reassigned"][1] - PROMPT  # the first token that has no place
    original, moved = runs["top"][0], runs["reassigned"][0]
    assert furthest(original[:there], moved[:there]) < 1e-12
    # Here a page has given way before: distances are not what they were.
    assert np.abs(original[there] - moved[there]).max() > 1e-4


# --- limits ---


def test_one_page_above_the_budget_it_is_not(model, everything):
    room = BUDGET.budget - 2 * PAGE  # of the answer; the prompt has two pages
    given = raas, BUDGET, PROMPT, room + 1
    ours = decode(model, *given)
    assert furthest(ours[:room], everything[:room]) < 1e-9
    assert np.abs(ours[room] - everything[room]).max() > 1e-4


def test_a_prompt_that_fills_the_budget_is_refused_with_another_policy(model):
    prompt = read(Decoder(model), 3 * PAGE, BUDGET.budget)
    message = r"3 pages .* needs 4.* 48 tokens takes 3 of the 6 pages .*to 112 or.*quest\+raas"
    with pytest.raises(UsageError, match=message):
        raas.Policy(BUDGET, prompt, WIDE)


@pytest.mark.parametrize(
    "wrong", [{"budget": 79}, {"rule": "half"}, {"alpha": 0.0}, {"alpha": 1.0}]
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


def test_it_reserves_no_more_than_must_be_held():
    assert [BUDGET.reserve(n) for n in (5, 64, 5000)] == [5, 64, 64]


@pytest.mark.parametrize("answer", [50, 63])
def test_a_short_answer_at_the_end_of_the_window_has_a_place(model, answer):
    prompt = read(Decoder(model), PROMPT, BUDGET.reserve(answer))
    with exact():
        policy = raas.Policy(BUDGET, prompt, PROMPT + answer)
    assert policy._turnover.slots * PAGE >= answer


# --- what is held ---


def test_the_prompt_is_pinned_and_its_last_page_stays_part_filled(model):
    decoder = Decoder(model)
    prompt = read(decoder, PROMPT, BUDGET.reserve(STEPS))
    before = [cache.keys[:, :PROMPT].clone() for cache in prompt.caches.values()]
    with exact():
        policy = raas.Policy(BUDGET, prompt, WIDE)
        for token in ORDER[PROMPT : PROMPT + STEPS]:
            step(decoder, policy, token)
    for keys, paged in zip(before, policy._paged.values(), strict=True):
        assert torch.equal(keys, paged.keys[:, :PROMPT])
        assert paged.pages.filled[:, :2].tolist() == [[16, 5]] * 2
        assert (paged.pages.filled[:, 2:5] > 0).all()


def test_the_page_being_filled_is_newest_and_never_goes(model):
    def check(policy):
        turnover = policy._turnover
        page = (turnover.slot - 1) // PAGE  # `slot` is the next token's already
        newest = turnover.stamps.gather(-1, page[..., None])
        assert (newest == turnover.now - 1).all()
        latest = (turnover.steps - 1) // PAGE + 2  # after the prompt's two pages
        assert (turnover.order.gather(-1, page[..., None]) == latest).all()
        assert (turnover.order == latest).sum(-1).eq(1).all()

    decode(model, raas, BUDGET, PROMPT, 85, after=check)


def test_memory_is_flat_over_150_tokens_and_the_prompts_is_let_go(make_model):
    decoder = Decoder(small(make_model, "qwen3-windows", num_hidden_layers=4))
    prompt = read(decoder, PROMPT, BUDGET.reserve(150))
    caches = [weakref.ref(cache) for cache in prompt.caches.values()]
    with exact():
        policy = raas.Policy(BUDGET, prompt, PROMPT + 100)
        del prompt
        gc.collect()
        assert not any(ref() for ref in caches)
        sizes = []
        for n in range(150):
            step(decoder, policy, ORDER[n])
            sizes.append({(x.data_ptr(), x.shape) for x in tensors(policy)})
    assert sizes[0] == sizes[99]
    assert sizes[101] == sizes[149]  # re-assigned between
    assert policy.spent().reassigned
    assert policy.spent().held == PROMPT + 4 * PAGE


def tensors(policy):
    """All that is as large as what is held."""
    paged = [(x.keys, x.values, *x.pages) for x in policy._paged.values()]
    rings = [(x.keys, x.values) for x in policy._rings._rings.values()]
    assert [keys.shape[1] for keys, _ in rings] == [24, 24]
    turnover = policy._turnover
    return [x for each in (*paged, *rings) for x in each] + [
        turnover.stamps,
        turnover.order,
        policy._scores,
    ]


@pytest.mark.parametrize("window", [WIDE, PROMPT + 60])
def test_sliding_windows_lose_nothing(make_model, window):
    """Nothing is selected there, and to re-assign positions moves all of them alike."""
    model = small(make_model, "mistral-window", num_hidden_layers=2)
    ours = decode(model, raas, BUDGET, PROMPT, 80, window)
    everything = decode(model, dense, dense.Options(), PROMPT, 80)
    assert furthest(ours, everything) < 1e-5  # the tables of angles are float32


@pytest.mark.parametrize("name", ["phi3-longrope", "llama-dynamic", "cohere2"])
def test_positions_are_reassigned_within_tables_of_any_kind(make_model, name):
    """Some tables have no row more than the window; the page being filled is not full here."""
    decoder, window = Decoder(make_model(name, vocab_size=400)), PROMPT + 70
    policy = raas.Policy(BUDGET, read(decoder, PROMPT, BUDGET.budget, plain=True), window)
    found = [step(decoder, policy, token) for token in ORDER[:75]]
    assert policy.reassigned
    assert np.isfinite(found).all()


def test_what_was_spent(model):
    policies = []
    decode(model, raas, BUDGET, PROMPT, 66, after=policies.append)
    spent = policies[-1].spent()
    held = [*range(1, 65), 49, 50]  # of the answer, in each step
    assert spent.attended == pytest.approx(PROMPT + sum(held) / 66)
    assert (spent.held, spent.refreshes, spent.reassigned) == (PROMPT + 64, None, False)


def test_kinds_of_steps(model):
    kinds = []
    window = PROMPT + 90
    decode(model, raas, BUDGET, PROMPT, 100, window, lambda policy: kinds.append(policy.kind))
    assert kinds[:17] == [*["step"] * 15, "open", "step"]
    assert kinds[88:91] == ["step", None, "step, re-assigned"]
    assert kinds[95] == "open, re-assigned"


def test_no_step_waits_for_the_device(model):
    decoder, window = Decoder(model), PROMPT + 65
    prompt = read(decoder, PROMPT, BUDGET.budget)
    with exact():
        policy = raas.Policy(BUDGET, prompt, window)
        for token in ORDER[:70]:
            ids = torch.tensor([token])
            with NeverWaiting():
                policy.begin_token()
                decoder.read(ids, policy)
                policy.end_token()
            policy.advance()
    assert policy.spent().reassigned


# --- pages ---


def test_page_representatives_are_the_extremes_of_what_is_in_use():
    keys = torch.randn(2, 3 * PAGE, 8, generator=torch.Generator().manual_seed(1))
    pages = known(keys, 37)
    assert pages.filled.tolist() == [[16, 16, 5]] * 2
    for page, (start, end) in enumerate(((0, 16), (16, 32), (32, 37))):
        assert torch.equal(pages.low[:, page], keys[:, start:end].amin(1))
        assert torch.equal(pages.high[:, page], keys[:, start:end].amax(1))


def turnover(slots=3, pinned=1, layers=1, heads=1):
    return Turnover((layers, heads), 10, slots, pinned, 0, None, torch.device("cpu"))


def fill(policy, pages):
    for _ in range(pages * PAGE):
        policy.begin()
        policy.end()
        policy.advance()


def test_free_pages_come_first_and_then_the_oldest_stamp():
    pages = turnover()
    for page in (1, 2, 3):
        pages.begin()
        assert pages.slot.item() == page * PAGE
        for _ in range(PAGE):
            pages.end()
            pages.advance()
    pages.stamps[0, 0] = torch.tensor([3, 40, 38, 39])  # the prompt's page is the oldest
    pages.begin()
    assert pages.slot.item() == 2 * PAGE
    assert pages.order.tolist() == [[[0, 1, 4, 3]]]


def test_of_equal_stamps_the_earliest_page_goes():
    pages = turnover()
    fill(pages, 4)  # pages 4, 2, 3 are left
    pages.stamps[0, 0, 1:] = 7
    pages.begin()
    assert pages.order.tolist() == [[[0, 4, 5, 3]]]


def test_each_layer_and_head_gives_up_a_page_of_its_own():
    pages = turnover(layers=2, heads=2)
    fill(pages, 3)
    pages.stamps[..., 1:] = torch.tensor([[[5, 6, 7], [7, 6, 5]], [[6, 5, 7], [5, 5, 5]]])
    pages.begin()
    assert (pages.slot // PAGE).tolist() == [[1, 3], [2, 1]]


# --- mutations ---


def unlike(model, runs, monkeypatch, where, name, mutant) -> float:
    monkeypatch.setattr(where, name, mutant)
    return furthest(decode(model, raas, BUDGET, PROMPT, 90), runs["top"][2][:90])


def test_another_map_of_query_heads_to_key_heads_is_noticed(model, runs, monkeypatch):
    def wrong(q, low, *given, **more):
        H, G = len(q), len(low)
        order = torch.arange(H).view(H // G, G).T.flatten()  # head h reads h % G
        return page_scores_ref.page_scores(q[order], low, *given, **more)

    assert unlike(model, runs, monkeypatch, pages_module, "page_scores", wrong) > 1e-4


def test_the_mean_over_the_group_is_noticed(model, runs, monkeypatch):
    def mean(q, low, high, filled, scale, always, out):
        each = q.view(len(low), -1, 1, q.shape[-1])
        bound = torch.maximum(each * low[:, None], each * high[:, None]).sum(-1).mean(1)
        return out.copy_((bound * scale).masked_fill(filled == 0, -torch.inf))

    assert unlike(model, runs, monkeypatch, pages_module, "page_scores", mean) > 1e-4


def test_ties_the_other_way_are_noticed(model, monkeypatch):
    options = replace(BUDGET, rule="alpha", alpha=1e-3)  # nearly all pages have the newest stamp
    expected = transcribed(model, PROMPT, 70, settings(options))
    assert furthest(decode(model, raas, options, PROMPT, 70), expected) < 1e-9
    whole = Turnover._open

    def latest(self):
        order, used = self.order, self.stamps >= 0
        self.order = torch.where(used, -order, order)
        whole(self)
        numbers = torch.where(used, -self.order, self.order)
        self.order = torch.where(self.order == self._number - 1, self.order, numbers)

    monkeypatch.setattr(Turnover, "_open", latest)
    assert furthest(decode(model, raas, options, PROMPT, 70), expected) > 1e-4
