"""Tokens of a recalled answer that are replayed, and again while values are missing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from float64_models import ORDER, exact, float64_model, same_to_the_bit
from held_tables import are_held
from retrieving_runs import ANSWER, PREFIX
from row_list import RowList

from longctx.core.common.errors import StateMismatch
from longctx.core.contracts.memory import Place
from longctx.core.contracts.policy import Recalling
from longctx.core.decode import policies
from longctx.core.decode.decode import Generation
from longctx.core.decode.stepping import attempting
from longctx.core.decode.stepping.attempting import Attempting
from longctx.core.decode.stepping.one_token import OneToken
from longctx.core.engine.encode import encode
from longctx.core.kv import kept, scanned
from longctx.core.methods import reattention
from longctx.core.methods.reattention import Method, Options
from longctx.core.model.adapter import Decoder
from longctx.core.profile.sampling import Sampling
from longctx.kernels import choice

OPTIONS = Options(first=5, local=24, chunk=12, top_k=2, voted=6, span=4, gather=40)
DOCUMENT, STEPS = 150, 12
IDS, QUESTION = torch.tensor(ORDER[: PREFIX + DOCUMENT]), torch.tensor(ORDER[200:217])
ROOM = Place("cpu", torch.float64, room=1 << 30)  # values stay on the device


@pytest.fixture
def runs():
    """How often the work that was recorded has run; nothing is recorded."""
    return []


def capture_into(runs, spoil=lambda work: None):
    def capture(device, work):
        def replay():
            runs.append(device)
            work()
            spoil(work)

        return replay

    return capture


class Counted(RowList):
    """Rows that note which of them are taken."""

    taken: list[tuple[str, int]]
    damaged = False

    def take(self, group, rows, names=None):
        if self.damaged:
            self.damaged = False
            raise StateMismatch("a block is damaged")
        self.taken += [(name, row) for name in names or () for row in rows.tolist()]
        return super().take(group, rows, names)


def opened(make_model, options=OPTIONS, place=ROOM):
    """A decoder, and a method that was restored to answer from what another has read."""
    decoder, rows = Decoder(float64_model(make_model, "llama-default")), Counted()
    method = Method(options, decoder.layers, place)
    with exact():
        list(encode(decoder, method, IDS[:PREFIX], IDS[PREFIX:].split(37), rows))
    rows.taken = []
    restored = Method(options, decoder.layers, place)
    restored.restore(method.snapshot(), rows, reading=False)
    return decoder, restored, rows


def asked(decoder, method):
    memory = method.recall()
    with exact():
        for chunk in QUESTION.split(memory.chunk):
            decoder.read(chunk, memory)
    memory.begin_answer()
    return memory


def over(memory) -> Recalling:
    made = policies.load("dense").Policy.recalling
    return made(policies.USUAL.options, memory, 64)


def answered(decoder, method, capture=None, reader=None):
    """The hidden states of an answer, and the memory; by replay where something captures."""
    memory = asked(decoder, method)
    policy, reader = over(memory), reader or decoder
    if capture:
        reader = Attempting(reader, decoder, policy, capture)
    with exact():
        found = [
            reader.read(torch.tensor([token]), policy).clone().numpy() for token in ANSWER[:STEPS]
        ]
    return found, memory


@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_replays_read_what_the_layers_do(make_model, runs, monkeypatch, kv_dtype):
    monkeypatch.setattr(reattention, "VOTING_STEPS", STEPS // 2)
    options = Options(**{**vars(OPTIONS), "kv_dtype": kv_dtype})
    decoder, method, rows = opened(make_model, options)
    expected, there = answered(decoder, opened(make_model, options)[1])
    found, memory = answered(decoder, method, capture_into(runs))
    assert same_to_the_bit(found, expected)
    assert torch.equal(memory.scores(DOCUMENT).raw, there.scores(DOCUMENT).raw)
    assert (memory.attended(), memory.kept) == (there.attended(), there.kept)
    assert len(runs) > STEPS - 1  # of which one is only compared: something was missing
    assert len(set(rows.taken)) == len(rows.taken)  # nothing is brought twice
    assert {name for name, _ in rows.taken} >= {"values.0", "values.3"}


def test_layers_are_replayed_in_parts(make_model, runs, monkeypatch):
    """Those of a later part lack nothing because an earlier one did: less is read in vain."""
    decoder, method, rows = opened(make_model)
    reader = OneToken.of(decoder)
    _, other, others = opened(make_model)
    expected, _ = answered(decoder, other, reader=reader)
    taken = []
    for layers in (4, 3, 1):
        monkeypatch.setattr(attempting, "LAYERS", layers)
        _, method, rows = opened(make_model)
        runs.clear()
        found, _ = answered(decoder, method, capture_into(runs), reader)
        assert same_to_the_bit(found, expected)
        taken.append(len(rows.taken))
        parts = -(-4 // layers)
        assert len(runs) > parts * (STEPS - 1)
    assert taken == sorted(taken, reverse=True)
    assert taken[0] > taken[2] == len(others.taken)  # of one layer each nothing is in vain


def test_values_stay_for_the_next_question(make_model, runs):
    decoder, method, rows = opened(make_model)
    first, _ = answered(decoder, method, capture_into(runs))
    before = len(rows.taken)
    second, _ = answered(decoder, method, capture_into(runs))
    assert same_to_the_bit(first, second)
    assert len(rows.taken) == before > 0


def test_with_little_room_nothing_is_replayed(make_model, runs):
    """A long question makes longer buffers of keys and values, beside those of the document."""
    decoder, method, _ = opened(make_model)
    width = sum(8 * layer.kv_heads * layer.head_dim for layer in decoder.layers)
    tokens = PREFIX + DOCUMENT + kept.SPARE  # of keys, and values; of both again, and a 16th more
    enough = width * -(-tokens * (2 * 16 + 2 * 17) // 16)
    expected, _ = answered(decoder, method)
    for room in (enough, enough - 1):
        place, replayed = Place("cpu", torch.float64, room=room), room == enough
        _, method, _ = opened(make_model, place=place)
        runs.clear()
        found, memory = answered(decoder, method, capture_into(runs))
        assert same_to_the_bit(found, expected)
        assert bool(runs) == (memory.attempting() is not None) == replayed


def test_what_fills_its_room_goes_on_directly(make_model, runs, monkeypatch):
    for module in (kept, scanned):
        monkeypatch.setattr(module, "SPARE", len(QUESTION) + 6)
    decoder, method, _ = opened(make_model)
    expected, _ = answered(decoder, opened(make_model)[1])
    found, memory = answered(decoder, method, capture_into(runs))
    assert same_to_the_bit(found, expected)
    assert memory.kept == PREFIX + DOCUMENT + len(QUESTION) + STEPS
    replayed = 6 - 2  # the first two tokens are read directly
    assert replayed <= len(runs) - 1 < 4 * replayed


@pytest.mark.parametrize("fails", ["recording", "replaying"])
def test_what_cannot_be_replayed_is_read_directly(make_model, runs, fails):
    def refused(device, work):
        choice.broken["kernel", device] = "it cannot be recorded"
        raise RuntimeError("not here")

    def spoil(work):
        work.__self__._left.add_(1e-9)

    decoder, method, _ = opened(make_model)
    expected, _ = answered(decoder, opened(make_model)[1])
    capture = refused if fails == "recording" else capture_into(runs, spoil)
    found, _ = answered(decoder, method, capture)
    assert same_to_the_bit(found, expected)
    assert len(runs) < STEPS
    assert ("kernel", torch.device("cpu")) not in choice.broken


def test_a_damaged_row_that_only_seemed_to_be_missing_ends_no_answer(make_model, runs):
    decoder, method, rows = opened(make_model)
    expected, _ = answered(decoder, opened(make_model)[1])
    record = capture_into(runs)

    def capture(device, work):
        rows.damaged = False
        replay = record(device, work)

        def once():
            replay()
            rows.damaged = len(runs) == 3

        return once

    found, _ = answered(decoder, method, capture)
    assert same_to_the_bit(found, expected)
    assert len(runs) == 3  # from then on it is read directly
    assert not rows.damaged


def test_a_memory_that_may_lack_rows_is_not_replayed_as_it_is(make_model):
    decoder, method, _ = opened(make_model)
    assert (method.states(), method.recall().states()) == ([], [])
    reading = Method(OPTIONS, decoder.layers, replace(ROOM, tokens=400))
    with exact():
        list(encode(decoder, reading, IDS[:PREFIX], [IDS[PREFIX:]], RowList()))
    assert len(reading.states()) == 2 * len(decoder.layers)
    assert reading.recall().states() == []


def test_a_recording_holds_the_tables_that_it_reads(make_model, runs):
    decoder, method, _ = opened(make_model)
    memory = asked(decoder, method)
    policy = over(memory)
    reader = Attempting(decoder, decoder, policy, capture_into(runs))
    for token in ANSWER[:4]:
        reader.read(torch.tensor([token]), policy)
    assert are_held(decoder.layers[0].rope, 110)


def test_other_policies_and_models_with_windows_attempt_nothing(make_model):
    decoder, method, _ = opened(make_model)
    memory = asked(decoder, method)
    made = policies.load("recycled").Policy.recalling
    assert made(policies.choose("recycled:budget=20", {}).options, memory, 640).attempting() is None
    decoder = Decoder(float64_model(make_model, "mistral-window"))
    method = Method(OPTIONS, decoder.layers, ROOM)
    with exact():
        list(encode(decoder, method, IDS[:PREFIX], [IDS[PREFIX:]], RowList()))
    assert asked(decoder, method).attempting() is None


def test_answers_are_generated_by_replay(make_model, runs, monkeypatch):
    decoder, method, _ = opened(make_model)
    texts = []
    for capture in (None, capture_into(runs)):
        monkeypatch.setattr(attempting, "capture_of", lambda decoder, found=capture: found)
        memory = asked(decoder, method)
        hidden = torch.from_numpy(np.ones((1, decoder.config.hidden_size)))
        made = Generation(decoder, over(memory), hidden, QUESTION, Sampling(), STEPS, set())
        texts.append(list(made.tokens()))
        assert made.spent().held == memory.kept
    assert texts[0] == texts[1]
    assert len(runs) >= STEPS - 3


def test_a_cpu_records_nothing(make_model):
    assert attempting.capture_of(Decoder(make_model("llama-default"))) is None


@pytest.mark.gpu
@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_a_gpu_replays_tokens(make_model, monkeypatch, kv_dtype):
    told = []
    monkeypatch.setattr(attempting, "_tell", lambda *how: told.append(how))
    options = Options(**{**vars(OPTIONS), "kv_dtype": kv_dtype})
    place = Place("cuda", torch.bfloat16, room=1 << 30)
    decoder = Decoder(make_model("llama-default", vocab_size=400).to("cuda", torch.bfloat16))
    rows, read = Counted(), Method(options, decoder.layers, place)
    list(encode(decoder, read, IDS[:PREFIX], IDS[PREFIX:].split(37), rows))
    found = []
    for capture in (None, attempting.capture_of(decoder)):
        rows.taken = []
        method = Method(options, decoder.layers, place)
        method.restore(read.snapshot(), rows, reading=False)
        memory = method.recall()
        for chunk in QUESTION.split(memory.chunk):
            decoder.read(chunk, memory)
        memory.begin_answer()
        reader, policy = OneToken.of(decoder) or decoder, over(memory)
        if capture:
            reader = Attempting(reader, decoder, policy, capture)
        with torch.inference_mode():
            tokens = [torch.tensor([token], device="cuda") for token in ANSWER[:STEPS]]
            found.append([reader.read(token, policy).clone() for token in tokens])
        found.append(memory.scores(DOCUMENT).raw)
    assert all(map(torch.equal, found[0], found[2]))
    assert torch.equal(found[1], found[3])
    assert told == [("by replay", "it gives the same bits")]
