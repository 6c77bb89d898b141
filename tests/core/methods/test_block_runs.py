"""InfLLM and Ltri-LLM with blocks represented by runs, the default, against the transcriptions."""

from dataclasses import replace
from typing import Any

import infllm_transcription
import ltri_transcription
import numpy as np
import pytest
import runs_transcription
from float64_models import ORDER, float64_model, largest_difference
from retrieving_runs import PREFIX, Runs

from longctx.core.kv import block_vectors
from longctx.core.methods import infllm, ltri

SIZES: dict[str, Any] = {
    "first": 5,
    "local": 16,
    "block": 8,
    "chunk": 8,
    "retrieved": 3,
    "cached": 5,
    "gather": 40,
}
IDS, QUESTION = ORDER[: PREFIX + 80], ORDER[200:211]
KEEPING = {"answering": True}  # of Ltri-LLM: an answer keeps the blocks of its question
FEW = 3  # queries that ask, so that chunks have more


def infllm_settings(o: infllm.Options) -> infllm_transcription.Settings:
    sizes = (o.first, o.local, o.block, o.chunk, o.retrieved, o.vectors)
    return infllm_transcription.Settings(*sizes, run=o.run, in_order=o.in_order)


def ltri_settings(o: ltri.Options) -> ltri_transcription.Settings:
    sizes = (o.first, o.local, o.block, o.chunk, o.retrieved, o.spans, o.vectors)
    heads = {1: (3, 0.3), 3: (1, 0.5)}
    paper = ((0.9,) * 5, (0.1,) * 5, (3.0,) * 5, o.ratio)
    return ltri_transcription.Settings(*sizes, *paper, heads, 4, run=o.run, in_order=o.in_order)


RUNS = {
    "infllm": Runs(
        infllm_transcription,
        infllm_settings,
        infllm.Method,
        infllm.Options(**SIZES),
        IDS,
        QUESTION,
        2,
    ),
    "ltri": Runs(
        ltri_transcription,
        ltri_settings,
        ltri.Method,
        ltri.Options(**SIZES, heads=((1, 3, 0.3), (3, 1, 0.5))),
        IDS,
        QUESTION,
        2,
        KEEPING,
    ),
}


@pytest.fixture(params=["infllm", "ltri"])
def runs(request, monkeypatch) -> Runs:
    monkeypatch.setattr(block_vectors, "QUERIES", FEW)
    monkeypatch.setattr(runs_transcription, "ASKING", FEW)
    return RUNS[request.param]


def model_of(make_model):
    return float64_model(make_model, "llama-default", num_hidden_layers=4)


def test_question_and_answer_are_the_transcriptions(make_model, runs):
    model = model_of(make_model)
    decoder, method, _ = runs.read(model)
    ours, memory = runs.answer(decoder, method)
    expected, reading, asked, _ = runs.transcribed_answer(model)
    assert largest_difference(ours, expected) < 1e-5
    assert len({tuple(x.blocks) for x in reading.retrievals.values()}) > 5  # not vacuous
    votes = memory.scores(len(IDS) - PREFIX).raw.numpy()
    seen = {b for (at, _), x in asked.retrievals.items() if at >= reading.chunks for b in x.blocks}
    assert np.flatnonzero(votes).size > 0
    starts = {b * 8 + 5 - PREFIX for b in seen}
    assert {int(at) for at in np.flatnonzero(votes)} <= {s + i for s in starts for i in range(8)}


@pytest.mark.parametrize("name", RUNS)
def test_in_order_the_transcriptions_too(make_model, name):
    model, runs = model_of(make_model), RUNS[name]
    options = replace(runs.options, in_order=True, run=0)
    ours = runs.answer(*runs.read(model, options)[:2], steps=1)[0]
    expected = runs.transcribed_answer(model, options, steps=1)[0]
    assert largest_difference(ours, expected) < 1e-5
    at_one_distance = runs.answer(*runs.read(model, replace(options, in_order=False))[:2], steps=1)
    assert largest_difference(ours, at_one_distance[0]) > 1e-4


def test_a_saved_state_answers_like_the_process_that_read(make_model, runs):
    decoder, method, rows = runs.read(model_of(make_model))
    again = type(method)(runs.options, decoder.layers, method._place)
    again.restore(method.snapshot(), rows, reading=False)
    ours, saved = (runs.answer(decoder, each, steps=1)[0] for each in (method, again))
    assert largest_difference(ours, saved) < 1e-9


def test_the_head_of_another_key_is_noticed(make_model, monkeypatch, runs):
    original = block_vectors.run_means

    def wrong(keys, run):
        return original(keys.flip(3), run)

    where = infllm if runs is RUNS["infllm"] else ltri
    assert runs.difference_of_mutant(make_model, monkeypatch, where, "run_means", wrong) > 1e-4


def test_queries_that_all_ask_are_noticed(make_model, monkeypatch):
    monkeypatch.setattr(runs_transcription, "ASKING", FEW)
    found = RUNS["infllm"].difference_of_mutant(
        make_model, monkeypatch, block_vectors, "QUERIES", 64
    )
    assert found > 1e-4


def test_a_state_from_before_there_were_runs_keeps_its_index():
    old = {"first": 5, "retrieved": 3, "vectors": 4}
    assert infllm.Options.recorded(old) == {**old, "run": 0, "in_order": False}
    assert ltri.Options.recorded({**old, "run": 8})["run"] == 8


@pytest.mark.parametrize("run", [-1, 3, 16])
def test_a_run_divides_a_block(run):
    with pytest.raises(ValueError, match="run: expected 0 or a divisor of block, 8"):
        infllm.Options(**SIZES, run=run)
