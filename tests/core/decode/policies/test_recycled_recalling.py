"""Recycled Attention over ReAttention: its transcription, and ReAttention's own answers."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import reattention_transcription
import recalled_transcription
import recycled_transcription
import torch
from decoded import exact, weights_of
from row_list import RowList

from longctx.core.common.errors import UsageError
from longctx.core.contracts.memory import Place
from longctx.core.decode.policies import dense, recycled
from longctx.core.decode.policies.recycled import Options, Recalling
from longctx.core.engine.encode import encode
from longctx.core.methods import reattention
from longctx.core.methods.reattention import Method
from longctx.core.model.adapter import Decoder

READING = reattention.Options(first=5, local=24, chunk=12, top_k=2, voted=6, span=4, gather=40)
ORDER = np.random.default_rng(7).permutation(400).tolist()
IDS, QUESTION, ANSWER = ORDER[:110], ORDER[200:217], ORDER[300:324]
OPTIONS = Options(budget=14, stride=7)
CASES = {
    "stride": OPTIONS,
    "runs-out": replace(OPTIONS, budget=4, stride=50),
    "dynamic": replace(OPTIONS, stride=9, similarity=0.8, compare=2),
}


def make(make_model, name, dtype=torch.float64, **changes):
    return make_model(name, dtype, vocab_size=400, **changes)


def read(model, options=READING, ids=IDS):
    decoder = Decoder(model)
    method = Method(options, decoder.layers, Place(dtype=decoder.dtype))
    given = torch.tensor(ids)
    list(encode(decoder, method, given[:3], given[3:].split(37), RowList()))
    return decoder, method


def answer(decoder, method, module, options, window=1 << 20, after=lambda policy: None):
    """Logits after each token of the answer, and the policy."""
    memory, found = method.recall(), []
    for chunk in torch.tensor(QUESTION).split(memory.chunk):
        decoder.read(chunk, memory)
    memory.begin_answer()
    policy = module.Recalling(options, memory, window)
    for token in ANSWER:
        policy.begin_token()
        hidden = decoder.read(torch.tensor([token]), policy)
        policy.end_token()
        policy.advance()
        found.append(decoder.logits(hidden)[0].numpy())
        after(policy)
    return np.array(found), policy


class Watch:
    """Notes what was chosen at full steps."""

    def __init__(self):
        self.step, self.chosen, self.entries = 0, {}, []

    def __call__(self, policy):
        self.step += 1
        for layer, turn in policy._turns.items():
            self.entries.append(int(turn.count))
            if turn.cycle.schedule.since == 0:
                index = turn.cycle.recycled.index
                count = min(index.shape[1] - 1, int(turn.count))
                self.chosen[self.step, layer] = index[:, :count].tolist()


def ours(model, options, reading=READING, window=1 << 20):
    watch = Watch()
    with exact():
        given = *read(model, reading), recycled, options, window, watch
        return *answer(*given), watch


def theirs(model, options, reading=READING):
    w, o, r = weights_of(model), options, reading
    selecting = (r.first, r.local, r.chunk, r.top_k, r.voted, r.span)
    selecting = reattention_transcription.Settings(*selecting)
    settings = recycled_transcription.Settings(o.budget, o.stride, o.pool, o.similarity, o.compare)
    before = reattention_transcription.read(w, IDS, selecting)
    _, before = reattention_transcription.feed(w, before, QUESTION, selecting)
    return recalled_transcription.decode(w, before, ANSWER, selecting, settings)


# --- the transcription ---


@pytest.mark.parametrize(
    ("name", "case"),
    [
        *(("llama-default", case) for case in CASES),
        ("qwen3", "stride"),
        ("mistral-window", "stride"),
    ],
)
def test_it_is_the_transcription(make_model, name, case):
    model = make(make_model, name, num_hidden_layers=2)
    logits, policy, watch = ours(model, CASES[case])
    expected = theirs(model, CASES[case])
    assert watch.chosen == expected.chosen
    assert watch.entries == [len(expected.attended[at][0]) for at in sorted(expected.attended)]
    assert np.abs(logits - np.array(expected.logits)).max() < 1e-5
    spent = policy.spent()
    assert spent.refreshes == len(expected.full) / max(1, len(policy._turns))
    slides = [24] * (0 if policy._turns else 2 * len(ANSWER))
    assert spent.attended == np.mean(watch.entries + slides)
    copies = CASES[case].budget if policy._turns else 0
    assert spent.held == len(IDS) + len(QUESTION) + len(ANSWER) + copies


def test_the_comparison_is_not_vacuous(make_model):
    model = make(make_model, "llama-default", num_hidden_layers=2)
    logits, _, watch = ours(model, OPTIONS)
    for step in (1, 8, 15):
        sets = [tuple(sorted(head)) for layer in (0, 1) for head in watch.chosen[step, layer]]
        assert len({*sets}) == len(sets) == 4
        assert OPTIONS.budget < watch.entries[2 * step - 2] / 2
    with exact():
        expected, _ = answer(*read(model), dense, dense.Options())
    difference = np.abs(logits - expected).max(axis=1)
    assert difference[0] < 1e-9  # the answer's first token attends as ReAttention does
    assert difference[1:].min() > 1e-3


# --- ReAttention's own answers ---


@contextmanager
def reader(make_model, name, options):
    """A document that was read; int8 in float64, for rounding turns over with less."""
    if options.kv_dtype == "auto":
        yield read(make(make_model, name, torch.float32), options)
    else:
        with exact():
            yield read(make(make_model, name), options)


@pytest.mark.parametrize("name", ["llama-default", "qwen3-windows", "gemma2", "gpt_oss", "int8"])
def test_a_stride_of_one_is_reattention(make_model, name):
    name, kv_dtype = ("llama-default", "int8") if name == "int8" else (name, "auto")
    with reader(make_model, name, replace(READING, kv_dtype=kv_dtype)) as given:
        expected, told = answer(*given, dense, dense.Options())
        found, policy = answer(*given, recycled, replace(OPTIONS, stride=1), READING.window)
    assert np.abs(found - expected).max() < 1e-4
    assert policy.spent().attended == told.spent().attended


@pytest.mark.parametrize("name", ["llama-default", "llama-dynamic", "gpt_neox", "int8"])
def test_while_everything_fits_it_is_reattention(make_model, name):
    name, kv_dtype = ("llama-default", "int8") if name == "int8" else (name, "auto")
    total = len(IDS) + len(QUESTION) + len(ANSWER)
    options = replace(READING, local=total - READING.first, kv_dtype=kv_dtype)
    with reader(make_model, name, options) as given:
        expected, _ = answer(*given, dense, dense.Options())
        for budget, equal in ((total - 1, True), (total // 3, False)):
            found, policy = answer(*given, recycled, replace(OPTIONS, budget=budget))
            # At these lengths a dynamic embedding turns all keys anew for each token.
            every = policy.spent().refreshes == len(ANSWER)
            assert every == (name == "llama-dynamic")
            assert (np.abs(found - expected).max() < 1e-4) == (equal or every)


# --- the window ---


@pytest.mark.parametrize(("window", "voted"), [(READING.window, 4), (READING.window + 7, 6)])
def test_the_selection_leaves_room_for_the_tokens_since(make_model, window, voted):
    model, places = make(make_model, "llama-default"), []

    def note(policy):
        places.extend(int(turn._position) for turn in policy._turns.values())

    decoder, method = read(model)
    options = replace(OPTIONS, stride=8)  # seven tokens behind the window: two spans
    _, policy = answer(decoder, method, recycled, options, window, note)
    assert policy._recalled.options == replace(READING, voted=voted)
    assert policy.spent().narrowed == (voted < READING.voted)
    assert window - 2 * READING.span <= max(places) < window


def test_a_stride_that_leaves_no_selection_is_an_error(make_model):
    _, method = read(make(make_model, "llama-default", torch.float32))
    options = replace(OPTIONS, budget=40, stride=1 + READING.voted * READING.span)
    said = r"24 steps.*window is 53 tokens.*Lower `stride` or `budget`"
    with pytest.raises(UsageError, match=said):
        Recalling(options, method.recall(), READING.window)
    Recalling(replace(options, budget=10), method.recall(), READING.window)  # it runs out before


def test_a_question_leaves_the_document_as_it_was(make_model):
    decoder, method = read(make(make_model, "llama-default", torch.float32))
    first, _ = answer(decoder, method, recycled, OPTIONS, READING.window)
    again, _ = answer(decoder, method, recycled, OPTIONS, READING.window)
    assert np.array_equal(first, again)
    assert method.options == READING


def test_votes_of_the_question_and_of_full_steps_are_kept(make_model):
    decoder, method = read(make(make_model, "llama-default", torch.float32))
    _, policy = answer(decoder, method, recycled, OPTIONS)
    _, every = answer(decoder, method, dense, dense.Options())
    some, all_ = (p._recalled.scores(len(IDS) - 3).raw.sum() for p in (policy, every))
    assert 0 < some < all_
