"""Quest with RaaS against their transcription, over prompts and over what ReAttention kept."""

from dataclasses import replace

import numpy as np
import pytest
import raas_transcription as transcription
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
    watched,
    weights_of,
)
from raas_transcription import Settings
from row_list import RowList

from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import Place
from longctx.core.decode.policies import dense, quest_raas
from longctx.core.decode.policies.quest_raas import Options
from longctx.core.engine.encode import encode
from longctx.core.kv import kept_pages, pages
from longctx.core.methods import reattention
from longctx.core.model.adapter import Decoder
from longctx.kernels import page_scores_ref
from longctx.kernels.door import PAGE

PROMPT, STEPS = 85, 110  # five pages and a part of one
BUDGETS = Options(budget=3 * PAGE, answer_budget=4 * PAGE)
CASES = {
    "top": (BUDGETS, WIDE),
    "alpha": (replace(BUDGETS, rule="alpha", alpha=0.2), WIDE),
    "reassigned": (BUDGETS, PROMPT + 90),
}


@pytest.fixture(scope="module")
def model(make_model):
    return small(make_model)


@pytest.fixture(scope="module")
def runs(model):
    found = {}
    for name, (options, window) in CASES.items():
        stamps = []
        with watched() as seen:
            logits = decode(
                model,
                quest_raas,
                options,
                PROMPT,
                STEPS,
                window,
                lambda policy, to=stamps: to.append(held(policy._turnover)),
            )
        settings = Settings(3, 4, options.share, window)
        found[name] = logits, seen, stamps, transcribed(model, PROMPT, STEPS, settings)
    return found


def held(turnover):
    """Stamps by page number, counted from the prompt on, of every layer and head."""
    pairs = zip(turnover.order.flatten(0, 1), turnover.stamps.flatten(0, 1), strict=True)
    return [
        {n + 6: s for n, s in zip(numbers.tolist(), stamps.tolist(), strict=True) if s >= 0}
        for numbers, stamps in pairs
    ]


# --- a prompt ---


@pytest.mark.parametrize("name", CASES)
def test_pages_stamps_and_evictions_are_the_transcriptions(runs, name):
    _, seen, stamps, expected = runs[name]
    for n, (ours, theirs) in enumerate(zip(stamps, expected, strict=True)):
        answered = [{p: s for p, s in x.items() if p >= 6} for x in theirs.stamps.values()]
        assert ours == answered
        for layer, chosen in seen[2 * n : 2 * n + 2]:
            for g, numbers in enumerate(chosen.tolist()):
                assert numbers[:3] == theirs.attended[layer, g][:3]


@pytest.mark.parametrize("name", CASES)
def test_logits_are_the_transcriptions(runs, name):
    logits, _, _, expected = runs[name]
    assert furthest(logits, expected) < 1e-9
    assert min(x.gap for x in expected) > 1e-9


def test_the_comparison_is_not_vacuous(runs, model):
    logits, seen, stamps, expected = runs["top"]
    attended = [len({*head} & {*range(6)}) for _, pages in seen for head in pages.tolist()]
    assert max(attended) <= 3 <= -(-PROMPT // PAGE) / 2  # pages of the prompt
    assert all(len(head) == 4 for head in stamps[-1])  # of seven of the answer
    chosen = [{tuple(pages[:3]) for pages in x.attended.values()} for x in expected]
    assert max(map(len, chosen)) > 2
    assert any(len({tuple(sorted(head)) for head in x}) > 1 for x in stamps)
    everything = decode(model, dense, dense.Options(), PROMPT, STEPS)
    assert furthest(logits, everything) > 1e-3
    assert furthest(logits, runs["reassigned"][0]) > 1e-4
    assert runs["alpha"][2] != stamps


def test_above_either_budget_it_is_not(model):
    everything = decode(model, dense, dense.Options(), 48, 65)
    ours = decode(model, quest_raas, BUDGETS, 48, 65)
    assert furthest(ours[:64], everything[:64]) < 1e-9
    assert np.abs(ours[64] - everything[64]).max() > 1e-4
    longer = decode(model, quest_raas, BUDGETS, 49, 1)
    assert furthest(longer, decode(model, dense, dense.Options(), 49, 1)) > 1e-4


@pytest.mark.parametrize("length", [80, 81, 88, 95, 96])
def test_any_answer_within_its_reserve_has_a_place(model, length):
    """However the prompt fills its last page."""
    prompt = read(Decoder(model), length, BUDGETS.reserve(33))
    with exact():
        policy = quest_raas.Policy(BUDGETS, prompt, WIDE)
    assert policy._turnover.slots >= 3


def test_memory_is_flat_over_150_tokens(make_model):
    model = small(make_model, "qwen3-windows", num_hidden_layers=4)
    sizes = []

    def note(policy):
        paged = [(x.keys, x.values, *x.pages) for x in policy._paged.values()]
        rings = [(x.keys, x.values) for x in policy._rings._rings.values()]
        own = [(policy._scores, policy._pages)]
        each = [x for held in (*paged, *rings, *own) for x in held]
        sizes.append({(x.data_ptr(), x.shape) for x in each})

    decoder = Decoder(model)
    prompt = read(decoder, PROMPT, BUDGETS.reserve(150))
    with exact():
        policy = quest_raas.Policy(BUDGETS, prompt, PROMPT + 100)
        for token in ORDER[:150]:
            step(decoder, policy, token)
            note(policy)
    assert sizes[0] == sizes[99] == sizes[-1]
    spent = policy.spent()
    assert (spent.held, spent.reassigned) == (PROMPT + 64, True)
    assert 37 < spent.attended < 37 + 64  # two full pages of the prompt and five tokens


def test_no_step_waits_for_the_device(model):
    decoder, window = Decoder(model), PROMPT + 65
    prompt = read(decoder, PROMPT, BUDGETS.reserve(1000))
    with exact():
        policy = quest_raas.Policy(BUDGETS, prompt, window)
        for token in ORDER[:70]:
            ids = torch.tensor([token])
            with NeverWaiting():
                policy.begin_token()
                decoder.read(ids, policy)
                policy.end_token()
            policy.advance()
    assert policy.spent().reassigned


@pytest.mark.parametrize(
    "wrong", [{"budget": 31}, {"answer_budget": 63}, {"rule": "half"}, {"alpha": 2.0}]
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


# --- what ReAttention kept ---

READING = reattention.Options(first=5, local=24, chunk=12, top_k=2, voted=6, span=4, gather=40)
DOCUMENT, QUESTION, RECALLED = 130, 9, 85


def asked(model, options=READING, place=None, stored=False):
    """A decoder, and what a method kept of a document and a question."""
    decoder, sink = Decoder(model), RowList()
    place = place or Place(dtype=torch.float64)
    method, ids = reattention.Method(options, decoder.layers, place), torch.tensor(ORDER)
    with exact():
        list(encode(decoder, method, ids[:3], [ids[3:DOCUMENT]], sink))
        if stored:
            saved = method.snapshot()
            method = reattention.Method(options, decoder.layers, place)
            method.restore(saved, sink, reading=False)
        memory = method.recall()
        for chunk in ids[DOCUMENT : DOCUMENT + QUESTION].split(memory.chunk):
            decoder.read(chunk, memory)
    memory.begin_answer()
    return decoder, memory


def answered(model, options=BUDGETS, steps=STEPS, window=WIDE, options_of=READING, **how):
    decoder, memory = asked(model, options_of, **how)
    with exact():
        policy, found = quest_raas.Recalling(options, memory, window), []
        for token in ORDER[DOCUMENT + QUESTION :][:steps]:
            found.append(step(decoder, policy, token))
    return found, policy, memory


@pytest.fixture(scope="module")
def recalled(model):
    """Our logits, policy and memory, and the transcription's steps from the same keys."""
    logits, policy, memory = answered(model, steps=RECALLED)
    every, columns = torch.arange(DOCUMENT + QUESTION), ([], [])
    for index in range(model.config.num_hidden_layers):
        kept = memory.kept_layer(index)
        for column, rows in zip(columns, (kept.keys, kept.values), strict=True):
            heads = rows.gather(every).transpose(0, 1).numpy()
            column.append([list(head) for head in heads])
    tokens = ORDER[DOCUMENT + QUESTION :][:RECALLED]
    expected = transcription.recalled(weights_of(model), *columns, tokens, Settings(3, 4))
    return logits, policy, memory, expected


def test_over_what_was_kept_it_is_the_transcription(recalled):
    logits, policy, memory, expected = recalled
    assert furthest(logits, expected) < 1e-9
    assert min(x.gap for x in expected) > 1e-9
    assert max(len({tuple(pages[:3]) for pages in x.attended.values()}) for x in expected) > 2
    turnovers = [layer.turnover for layer in policy._layers.values()]
    first = -(-(DOCUMENT + QUESTION) // PAGE)
    for row, turnover in enumerate(turnovers):
        for g in range(2):
            stamps = {p: s for p, s in expected[-1].stamps[row, g].items() if p >= first}
            numbers = (turnover.order[0, g] + first).tolist()
            assert dict(zip(numbers, turnover.stamps[0, g].tolist(), strict=True)) == stamps
    assert memory.kept == DOCUMENT + QUESTION
    spent = policy.spent()
    assert (spent.held, spent.narrowed) == (DOCUMENT + QUESTION + 64, False)
    assert 32 + 11 < spent.attended < 32 + 11 + 64


def full_logits(model, ids):
    """The logits of transformers' own attention after the last token."""
    model.set_attn_implementation("eager")
    with torch.no_grad(), exact():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1].numpy()


@pytest.mark.parametrize("name", ["llama-default", "qwen3-windows"])
def test_with_everything_in_the_budgets_it_is_full_attention(make_model, name):
    model = small(make_model, name, num_hidden_layers=4)
    wide = replace(READING, first=100, local=100)  # so that reading is full attention too
    large = Options(budget=12 * PAGE, answer_budget=4 * PAGE)
    found, *_ = answered(model, large, 20, options_of=wide)
    truth = full_logits(model, ORDER[: DOCUMENT + QUESTION + 20])
    assert np.abs(found[-1] - truth).max() < 1e-4
    less, *_ = answered(model, replace(large, budget=8 * PAGE), 20, options_of=wide)
    assert np.abs(less[-1] - truth).max() > 1e-4


def test_values_on_disk_and_keys_in_host_memory_are_the_same(model, recalled):
    width = 2 * 2 * 8 * 8  # bytes of a token's keys over the layers
    for how in ({"stored": True}, {"place": Place(dtype=torch.float64, room=70 * width)}):
        found, *_ = answered(model, steps=10, **how)
        assert furthest(found, recalled[0][:10]) < 1e-9


def test_int8_is_close(model, recalled):
    found, *_ = answered(model, steps=3, options_of=replace(READING, kv_dtype="int8"))
    assert 0 < furthest(found[:1], recalled[0][:1]) < 0.5 * np.abs(recalled[0][0]).max()


def test_budgets_are_cut_to_the_window(model):
    large = Options(budget=4096, answer_budget=4 * PAGE)
    _, policy, _ = answered(model, large, 2, window=64 + 50)
    assert (policy.spent().attended, policy.spent().narrowed) == (32 + 11 + 1.5, True)
    with pytest.raises(UsageError, match=r"answer_budget of 64.*window is 95 tokens"):
        answered(model, large, 1, window=64 + 31)


# --- mutations ---


def test_another_map_of_query_heads_to_key_heads_is_noticed(model, runs, recalled, monkeypatch):
    def wrong(q, low, *given, **more):
        order = torch.arange(len(q)).view(-1, len(low)).T.flatten()  # head h reads h % G
        return page_scores_ref.page_scores(q[order], low, *given, **more)

    monkeypatch.setattr(pages, "page_scores", wrong)
    monkeypatch.setattr(kept_pages, "page_scores", wrong)
    assert furthest(decode(model, quest_raas, BUDGETS, PROMPT, 20), runs["top"][3][:20]) > 1e-4
    assert furthest(answered(model, steps=20)[0], recalled[3][:20]) > 1e-4
