"""Quest against its literal transcription, at its limit, and against mutations of itself."""

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
    transcribed,
    watched,
)
from raas_transcription import Settings

from longctx.core.decode.policies import dense, quest
from longctx.core.decode.policies.quest import Options
from longctx.core.kv import pages as pages_module
from longctx.core.model.adapter import Decoder
from longctx.kernels import page_scores_ref, top_pages_ref
from longctx.kernels.door import PAGE

PROMPT, STEPS = 53, 80
BUDGET = Options(budget=4 * PAGE)


@pytest.fixture(scope="module")
def model(make_model):
    return small(make_model)


@pytest.fixture(scope="module")
def run(model):
    """Our logits and pages, and the transcription's steps."""
    with watched() as seen:
        logits = decode(model, quest, BUDGET, PROMPT, STEPS)
    return logits, seen, transcribed(model, PROMPT, STEPS, Settings(4, None))


# --- against the transcription ---


def test_the_same_pages_are_chosen(run):
    _, seen, expected = run
    for n, step in enumerate(expected):
        held = -(-(PROMPT + n + 1) // PAGE)
        for layer, pages in seen[2 * n : 2 * n + 2]:
            for g, chosen in enumerate(pages.tolist()):
                # While fewer pages are in use than may be chosen, empty ones fill the list.
                assert [page for page in chosen if page < held] == step.attended[layer, g]


def test_logits_are_the_transcriptions(run):
    logits, _, expected = run
    assert furthest(logits, expected) < 1e-9
    assert min(step.gap for step in expected) > 1e-9


def test_the_comparison_is_not_vacuous(run, model):
    logits, _, expected = run
    total = -(-(PROMPT + STEPS) // PAGE)
    assert len(expected[-1].attended[0, 0]) == 4 <= total / 2
    assert any(len({tuple(x) for x in step.attended.values()}) == 4 for step in expected)
    everything = decode(model, dense, dense.Options(), PROMPT, STEPS)
    assert furthest(logits, everything) > 1e-3


def test_the_last_page_is_always_in_and_counted(run):
    for n, step in enumerate(run[2]):
        last = (PROMPT + n) // PAGE
        for layer, pages in run[1][2 * n : 2 * n + 2]:
            assert (pages == last).sum(-1).eq(1).all(), layer
            assert pages.shape == (2, 4)
        assert {pages[-1] for pages in step.attended.values()} == {last}


# --- limits ---


def test_one_page_above_the_budget_it_is_not(model):
    ours = decode(model, quest, BUDGET, 60, 5)
    everything = decode(model, dense, dense.Options(), 60, 5)
    assert furthest(ours[:4], everything[:4]) < 1e-9
    assert np.abs(ours[4] - everything[4]).max() > 1e-4


def test_a_budget_of_less_than_two_pages_is_refused():
    with pytest.raises(ValueError, match="budget: expected 32 or more, got 31"):
        Options(budget=31)


def test_what_was_spent(model):
    policies = []
    decode(model, quest, BUDGET, 60, 6, after=policies.append)
    attended = [61, 62, 63, 64, 49, 50]
    spent = policies[-1].spent()
    assert spent.attended == pytest.approx(sum(attended) / 6)
    assert (spent.held, spent.refreshes) == (66, None)


def test_no_step_waits_for_the_device(model):
    decoder = Decoder(model)
    prompt = read(decoder, PROMPT, 20)
    with exact():
        policy = quest.Policy(BUDGET, prompt, WIDE)
        for token in ORDER[:20]:
            ids = torch.tensor([token])
            with NeverWaiting():
                policy.begin_token()
                decoder.read(ids, policy)
                policy.end_token()
            policy.advance()


# --- mutations ---


def test_another_map_of_query_heads_to_key_heads_is_noticed(model, run, monkeypatch):
    def wrong(q, low, *given):
        order = torch.arange(len(q)).view(-1, len(low)).T.flatten()  # head h reads h % G
        return page_scores_ref.page_scores(q[order], low, *given)

    monkeypatch.setattr(pages_module, "page_scores", wrong)
    assert furthest(decode(model, quest, BUDGET, PROMPT, 25), run[2][:25]) > 1e-4


def test_the_mean_over_the_group_is_noticed(model, run, monkeypatch):
    def mean(q, low, high, filled, scale, always, out):
        each = q.view(len(low), -1, 1, q.shape[-1])
        bound = torch.maximum(each * low[:, None], each * high[:, None]).sum(-1).mean(1)
        scores = (bound * scale).masked_fill(filled == 0, -torch.inf)
        return scores.index_fill(1, always, torch.inf)

    monkeypatch.setattr(pages_module, "page_scores", mean)
    assert furthest(decode(model, quest, BUDGET, PROMPT, 25), run[2][:25]) > 1e-4


def test_of_equal_pages_the_earlier_is_chosen():
    scores = torch.tensor([[1.0, 2.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert top_pages_ref.top_pages(scores, 2).tolist() == [[0, 1], [0, 1]]
