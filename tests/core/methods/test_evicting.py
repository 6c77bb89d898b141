"""StreamingLLM, H2O and TOVA against a literal transcription, at their limits, and mutated."""

import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import evicting_transcription as transcription
import numpy as np
import pytest
import torch
from float64_models import (
    ORDER,
    WIDE,
    exact,
    float64_model,
    largest_difference,
    own_logits,
    same_to_the_bit,
    weights_of,
)
from mutants import interleaved_mass
from row_list import RowList
from sampled import WHOLE

from longctx.core import methods
from longctx.core.common.errors import StateMismatch, UsageError
from longctx.core.contracts.memory import Place
from longctx.core.engine.encode import encode
from longctx.core.kv import evicting
from longctx.core.methods import h2o, streaming, tova
from longctx.core.model.adapter import Decoder

SIZES = {"budget": 24, "chunk": 16, "question": 8}
OPTIONS = {
    "streaming": streaming.Options(**SIZES, first=3),
    "h2o": h2o.Options(**SIZES),
    "h2o, last queries": h2o.Options(**SIZES, queries=5),
    "tova": tova.Options(**SIZES),
}
PREFIX, DOCUMENT = 3, 82  # five whole chunks of the input and a tail of five tokens
IDS, QUESTION = ORDER[: PREFIX + DOCUMENT], ORDER[200:207]
ANSWER = ORDER[300:306]
VARIANTS = ["llama-default", "qwen2", "qwen3", "mistral-window"]


def method_of(kind: str) -> type[evicting.Evicting]:
    return methods.load(kind.partition(",")[0]).Method


def positions(method: evicting.Evicting) -> list[list[list[int]]]:
    return [cache.positions.tolist() for cache in method._caches]


@dataclass
class Ours:
    """One method that has read an input, and what it kept after each whole chunk."""

    decoder: Decoder
    method: evicting.Evicting
    kept: dict[tuple[int, int, int], list[int]]


def read(model, options, cls, ids=IDS, prefix=PREFIX, place=WIDE) -> Ours:
    decoder, sink, kept = Decoder(model), RowList(), {}
    method = cls(options, decoder.layers, place)
    ids = torch.tensor(ids)
    with exact():
        reading = encode(decoder, method, ids[:prefix], ids[prefix:].split(37), sink)
        for chunk, _ in enumerate(reading):
            for layer, heads in enumerate(positions(method)):
                kept.update({(chunk, layer, g): head for g, head in enumerate(heads)})
    assert not sink.groups
    return Ours(decoder, method, kept)


def answer(ours: Ours, question=QUESTION, tokens=ANSWER) -> tuple[list[np.ndarray], list, Any]:
    """Logits after the question and each token, what was kept then, and the memory."""
    memory, logits, kept = ours.method.recall(), [], []
    with exact():
        for chunk in torch.tensor(question).split(memory.chunk):
            hidden = ours.decoder.read(chunk, memory)
        logits.append(ours.decoder.logits(hidden[-1:])[0].numpy())
        memory.begin_answer()
        kept.append(positions(memory))
        for token in tokens:
            logits.append(ours.decoder.logits(ours.decoder.read(torch.tensor([token]), memory))[0])
            kept.append(positions(memory))
    return [np.asarray(x) for x in logits], kept, memory


def settings_of(kind: str, options) -> transcription.Settings:
    return transcription.Settings(
        method=kind.partition(",")[0],
        budget=options.budget,
        chunk=options.chunk,
        first=getattr(options, "first", 0),
        queries=getattr(options, "queries", None),
    )


@dataclass
class Expected:
    """The same of the transcription."""

    reading: transcription.State
    logits: list[np.ndarray]
    kept: list


def transcribe(model, kind: str) -> Expected:
    weights, settings = weights_of(model), settings_of(kind, OPTIONS[kind])
    reading = transcription.read(weights, IDS, settings)
    state = copy.deepcopy(reading)
    logits, kept = [transcription.feed(weights, state, QUESTION, settings)], []
    transcription.evict(weights, state, settings)
    kept.append(state.positions())
    for token in ANSWER:
        logits.append(transcription.feed(weights, state, [token], settings))
        transcription.evict(weights, state, settings)
        kept.append(state.positions())
    return Expected(reading, logits, kept)


@pytest.fixture(scope="module", params=[(k, v) for k in OPTIONS for v in VARIANTS], ids=str)
def both(request, make_model):
    kind, variant = request.param
    model = float64_model(make_model, variant)
    return kind, variant, read(model, OPTIONS[kind], method_of(kind)), transcribe(model, kind)


# --- against the transcription ---


def test_the_same_tokens_are_kept_after_every_chunk_and_the_tail(both):
    _, _, ours, expected = both
    assert ours.kept == expected.reading.kept
    assert len({chunk for chunk, _, _ in ours.kept}) == 5
    assert positions(ours.method) == expected.reading.positions()


def test_logits_and_kept_tokens_are_the_same_in_question_and_answer(both):
    _, _, ours, expected = both
    logits, kept, _ = answer(ours)
    assert len(logits) == len(expected.logits) == 1 + len(ANSWER)
    assert largest_difference(logits, expected.logits) < 1e-6
    assert kept == expected.kept


def test_the_comparison_is_not_vacuous(both):
    kind, variant, ours, expected = both
    last = {key[1:]: tuple(head) for key, head in ours.kept.items() if key[0] == 4}
    assert all(len(head) <= 5 * 16 / 2 for head in last.values())  # at least half are gone
    if variant == "mistral-window":  # its layers select nothing
        return
    layers = [(last[n, 0], last[n, 1]) for n in range(4)]
    apart = [first != second for first, second in layers]
    # Heads keep sets of their own with H2O alone, layers with TOVA too.
    assert sum(apart) >= 3 if kind.startswith("h2o") else not any(apart)
    assert len(set(layers)) == (1 if kind == "streaming" else 4)
    steps = [expected.kept[n][0][0] for n in range(1 + len(ANSWER))]
    assert all(len(head) == 24 for head in steps)
    assert len(set(map(tuple, steps))) == len(steps)


def test_h2o_with_the_last_queries_keeps_others_than_with_all(make_model):
    model = float64_model(make_model)
    kept = [read(model, OPTIONS[kind], h2o.Method).kept for kind in ("h2o", "h2o, last queries")]
    assert kept[0] != kept[1]


def test_keys_values_and_mass_are_the_transcriptions(both):
    _, variant, ours, expected = both
    snapshot = ours.method.snapshot()
    for layer, heads in enumerate(expected.reading.cache):
        for g, head in enumerate(heads):
            for name, part in (("keys", "key"), ("values", "value")):
                rows = np.stack([getattr(entry, part) for entry in head])
                assert np.abs(snapshot[f"{name}.{layer}"][g].numpy() - rows).max() < 1e-6
            if ours.method.carries and variant != "mistral-window":
                mass = [entry.weight for entry in head]
                assert np.abs(snapshot[f"mass.{layer}"][g].numpy() - mass).max() < 1e-6
    assert ours.method.carries == any(name.startswith("mass") for name in snapshot)


# --- the limit ---


@pytest.mark.parametrize("kind", OPTIONS)
def test_up_to_the_budget_it_is_full_attention_and_one_token_above_it_is_not(make_model, kind):
    model, differences = float64_model(make_model), []
    truth = own_logits(model, [*IDS[:30], *QUESTION, ANSWER[0]])
    prompt = 30 + len(QUESTION)
    for budget in (prompt, prompt - 1):
        ours = read(model, replace(OPTIONS[kind], budget=budget), method_of(kind), IDS[:30])
        logits, _, _ = answer(ours, tokens=ANSWER[:1])
        differences.append([np.abs(a - b).max() for a, b in zip(logits, truth[-2:], strict=True)])
    assert max(differences[0]) < 1e-6
    assert differences[1][0] < 1e-6  # the question saw everything
    assert differences[1][1] > 1e-5


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_chunk_above_the_budget_is_not_full_attention(make_model, kind):
    model = float64_model(make_model)
    truth = own_logits(model, [*IDS[:32], *QUESTION])[-1]
    for budget, differs in ((32, False), (31, True)):
        ours = read(model, replace(OPTIONS[kind], budget=budget), method_of(kind), IDS[:32])
        found = answer(ours, tokens=[])[0][0]
        assert (np.abs(found - truth).max() > 1e-5) == differs


def test_every_architecture_is_itself_inside_the_budget(
    make_model, architecture, all_architectures
):
    kinds = ("streaming", "h2o", "tova")
    if not WHOLE:
        kinds = (kinds[all_architectures.index(architecture) % 3],)
    model = make_model(architecture, vocab_size=400)  # float32: some have no float64
    # Where frequencies depend on the length, a chunk's states do too.
    grows = "dynamic" in architecture or "longrope" in architecture
    count = 20 if grows else 40
    truth = own_logits(model, [*IDS[:count], *QUESTION, *ANSWER[:3]])[-4:]
    scale = max(1.0, np.abs(truth).max())
    for kind in kinds:
        wide = replace(OPTIONS[kind], budget=64)
        ours = read(model, wide, method_of(kind), IDS[:count], place=Place())
        logits, _, _ = answer(ours, tokens=ANSWER[:3])
        assert np.abs(np.stack(logits) - truth).max() < 1e-4 * scale
        tight = replace(OPTIONS[kind], budget=10, chunk=8)
        ours = read(model, tight, method_of(kind), IDS[:count], place=Place())
        some, _, _ = answer(ours, QUESTION[:4], ANSWER[:3])
        assert all(np.isfinite(x).all() for x in some)
        if any(layer.window is None for layer in ours.decoder.layers):
            expected = own_logits(model, [*IDS[:count], *QUESTION[:4]])[-1]
            assert np.abs(some[0] - expected).max() > 1e-3


# --- mutations, ties ---


@pytest.mark.parametrize("kind", ["h2o", "tova"])
def test_another_map_of_query_heads_to_key_heads_is_noticed(make_model, monkeypatch, kind):
    model = float64_model(make_model)
    expected = read(model, OPTIONS[kind], method_of(kind)).kept
    monkeypatch.setattr(evicting, "attention_mass", interleaved_mass)
    assert read(model, OPTIONS[kind], method_of(kind)).kept != expected


def at_original_positions(cls):
    """A method that attends at the positions in the input instead of consecutive ones."""

    class Shifted(cls):
        def attend(self, layer, q, k, v):
            cache = self._caches[layer.index]
            gone = 0 if cache is None else self._seen - cache.length

            def rotate_chunk(q, k, cached):
                C, S = cached.shape[1], cached.shape[1] + q.shape[1]
                moved = torch.arange(S)
                moved[C:] += gone  # the new tokens, not those in the cache
                keys = layer.rotate(torch.cat([cached, k], dim=1), moved, S + gone)
                return layer.rotate(q, moved[C:], S + gone), keys

            names = ["index", "scale", "window", "kv_heads", "query_heads", "head_dim"]
            names += ["softcap", "sinks", "attention_lse"]
            own = {name: getattr(layer, name) for name in names}
            return super().attend(SimpleNamespace(rotate_chunk=rotate_chunk, **own), q, k, v)

    return Shifted


@pytest.mark.parametrize("kind", OPTIONS)
def test_original_positions_are_noticed(make_model, kind):
    model = float64_model(make_model)
    expected = answer(read(model, OPTIONS[kind], method_of(kind)))[0]
    found = answer(read(model, OPTIONS[kind], at_original_positions(method_of(kind))))[0]
    assert np.abs(found[0] - expected[0]).max() > 1e-3


def test_h2o_that_forgets_earlier_attention_is_noticed(make_model):
    class Forgetful(h2o.Method):
        def weigh(self, mass, *given):
            return super().weigh(mass * 0, *given)

    model = float64_model(make_model)
    kept = [read(model, OPTIONS["h2o"], cls).kept for cls in (h2o.Method, Forgetful)]
    assert kept[0] != kept[1]


def stay(kind: str, mass: list[float], **changes) -> list[int]:
    options = replace(OPTIONS[kind], **changes)
    method = method_of(kind)(options, ())
    return method.stay(torch.tensor([mass]))[0].tolist()


def test_of_equal_attention_the_earlier_token_stays():
    mass = [0.5, 1.0, 2.0, 1.0, 1.0, 0.0, 3.0]
    assert stay("tova", mass, budget=4) == [1, 2, 3, 6]
    assert stay("tova", mass, budget=3) == [1, 2, 6]
    assert stay("h2o", mass, budget=4) == [1, 2, 5, 6]  # two of them are recent
    assert stay("h2o", mass, budget=5) == [1, 2, 3, 5, 6]


def test_streaming_keeps_both_ends():
    assert stay("streaming", [0.0] * 9, budget=5, first=2) == [0, 1, 6, 7, 8]
    assert stay("streaming", [0.0] * 9, budget=5, first=0) == [4, 5, 6, 7, 8]


def test_attention_is_the_same_in_blocks(make_model, monkeypatch):
    model = float64_model(make_model)
    whole = read(model, OPTIONS["h2o"], h2o.Method)
    monkeypatch.setattr(evicting, "LOGITS", 4 * 40 * 3)  # three queries at a time
    parts = read(model, OPTIONS["h2o"], h2o.Method)
    assert parts.kept == whole.kept
    for layer in range(4):
        mass = [x.method.snapshot()[f"mass.{layer}"] for x in (whole, parts)]
        assert torch.allclose(*mass, rtol=1e-12, atol=1e-14)


# --- saving ---


@pytest.mark.parametrize("variant", ["llama-default", "mistral-window"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_reading_goes_on_from_a_snapshot_with_the_same_bytes(make_model, kind, variant):
    model, cls = float64_model(make_model, variant), method_of(kind)
    whole, half = read(model, OPTIONS[kind], cls), 3 * 16
    begun = read(model, OPTIONS[kind], cls, IDS[:half])
    gone_on = cls(OPTIONS[kind], begun.decoder.layers, WIDE)
    gone_on.restore(begun.method.snapshot())
    with exact():
        rest = torch.tensor(IDS[half:])
        list(encode(begun.decoder, gone_on, rest[:0], [rest], None))
    snapshots = [whole.method.snapshot(), gone_on.snapshot()]
    assert snapshots[0].keys() == snapshots[1].keys()
    assert all(torch.equal(x, snapshots[1][name]) for name, x in snapshots[0].items())
    expected = answer(whole)[0]
    found = answer(Ours(begun.decoder, gone_on, {}))[0]
    assert same_to_the_bit(found, expected)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_question_leaves_the_document_as_it_was(make_model, kind):
    ours = read(float64_model(make_model), OPTIONS[kind], method_of(kind))
    before = ours.method.snapshot()
    first, again = answer(ours)[0], answer(ours)[0]
    assert same_to_the_bit(first, again)
    after = ours.method.snapshot()
    assert all(torch.equal(x, after[name]) for name, x in before.items())


@pytest.mark.parametrize("variant", ["llama-default", "mistral-window"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_snapshot_takes_at_most_what_is_promised(make_model, kind, variant):
    model, sizes = float64_model(make_model, variant), []
    for count in (10, 40, 47, 48):
        ours = read(model, OPTIONS[kind], method_of(kind), IDS[:count])
        snapshot = ours.method.snapshot()
        sizes.append(sum(x.numel() * x.element_size() for x in snapshot.values()) - 8)
        assert sizes[-1] <= ours.method.snapshot_bytes(count, 8)
    assert sizes[0] == ours.method.snapshot_bytes(10, 8)
    assert sizes[2] > 0.9 * ours.method.snapshot_bytes(47, 8)  # a tail of a chunk less one token
    assert (ours.method.row_bytes(), ours.method.held_bytes(10**6).device) == (0, 0)


def test_a_state_of_another_method_or_model_is_refused(make_model):
    ours = read(float64_model(make_model), OPTIONS["h2o"], h2o.Method)
    snapshot, layers = ours.method.snapshot(), ours.decoder.layers
    places = snapshot["positions.1"]
    fewer = Decoder(float64_model(make_model, num_hidden_layers=3)).layers
    wrong = [
        (tova, layers, snapshot),  # it saves no mass
        (h2o, fewer, snapshot),
        (h2o, layers, {k: v for k, v in snapshot.items() if k != "mass.2"}),
        (h2o, layers, {**snapshot, "keys.1": snapshot["keys.1"][:, 1:]}),
        (h2o, layers, {**snapshot, "positions.1": places + 1}),
        (h2o, layers, {**snapshot, "positions.1": places - 1}),
        (h2o, layers, {**snapshot, "positions.1": places.flip(1)}),
        (h2o, layers, {**snapshot, "seen": torch.tensor(len(IDS) - 1)}),
    ]
    for module, of, given in wrong:
        name = module.Method.name
        with pytest.raises(StateMismatch, match=f"cannot be those of the method '{name}'"):
            module.Method(OPTIONS[name], of, WIDE).restore(given)


# --- what an answer could see ---


@pytest.mark.parametrize("variant", ["llama-default", "mistral-window"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_scores_count_the_layers_and_heads_that_kept_a_token(make_model, kind, variant):
    ours = read(float64_model(make_model, variant), OPTIONS[kind], method_of(kind))
    expected = [0] * DOCUMENT
    for layer, heads in zip(ours.decoder.layers, positions(ours.method), strict=True):
        for head in heads:
            for place in head:
                within = layer.window is None or place > len(IDS) - layer.window
                if place >= PREFIX and within:
                    expected[place - PREFIX] += 1
    memory = ours.method.recall()
    asked = memory.scores(DOCUMENT)
    _, _, answered = answer(ours)
    for scores in (asked, answered.scores(DOCUMENT)):  # what left since was seen
        assert scores.raw.tolist() == expected
        assert scores.pooled.tolist() == [count or -1 for count in expected]
    assert 0 < sum(count > 0 for count in expected) < DOCUMENT
    assert len(memory.scores(len(IDS) + 5).raw) == len(IDS)  # more than were read: damage


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_answer_of_any_length_stays_within_the_budget(make_model, kind):
    ours = read(float64_model(make_model), OPTIONS[kind], method_of(kind))
    tokens = ORDER[:60]
    logits, kept, memory = answer(ours, tokens=tokens)
    assert all(len(head) == 24 for step in kept for layer in step for head in layer)
    assert memory.attended() == memory.kept == 25  # with the token itself
    assert all(np.isfinite(x).all() for x in logits)
    if kind == "streaming":
        assert kept[-1][0][0][:3] == [0, 1, 2]
        assert kept[-1][0][0][3] == len(IDS) + len(QUESTION) + 60 - 21


def test_a_window_counts_where_a_layer_slides(make_model):
    ours = read(float64_model(make_model, "mistral-window"), OPTIONS["tova"], tova.Method)
    _, kept, memory = answer(ours)
    assert {len(head) for step in kept for layer in step for head in layer} == {24}  # its window
    assert memory.attended() == 24


# --- options ---


def test_a_question_too_long_is_refused_with_what_it_may_have(make_model):
    ours = read(float64_model(make_model), OPTIONS["tova"], tova.Method)
    longest = 24 + 16 + 8 - (24 + 5)  # less the budget and the tail
    assert len(answer(ours, ORDER[:longest], [])[0]) == 1
    for count in (longest + 1, 300):
        with pytest.raises(UsageError, match=f"may have {longest} tokens.*Ask a shorter one"):
            answer(ours, ORDER[:count], [])


def test_options_are_cut_to_the_window():
    default = tova.Options()
    assert default.fitted(131_072) is default
    assert default.fitted(8192 + 8192 + 512) is default
    assert default.fitted(16384) == tova.Options(8192, 7680, 512)
    assert default.fitted(4096) == tova.Options(2560, 1024, 512)
    assert default.fitted(256) == tova.Options(160, 64, 32)
    for window in (64, 1000, 4097, 16895):
        cut = default.fitted(window)
        assert cut.longest <= window
        assert cut.fitted(window) is cut
    with pytest.raises(UsageError, match="window: it is 256 tokens; first: expected 0 to 159"):
        streaming.Options(first=200).fitted(256)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("tova", {"budget": 0}, "budget"),
        ("tova", {"chunk": 0}, "chunk"),
        ("tova", {"question": 0}, "question"),
        ("streaming", {"first": 24}, "first: expected 0 to 23, got 24"),
        ("streaming", {"first": -1}, "first"),
        ("h2o", {"queries": 0}, "queries"),
        ("h2o", {"budget": 1}, "budget"),
    ],
)
def test_bad_options_are_refused(kind, change, message):
    with pytest.raises(ValueError, match=message):
        replace(OPTIONS[kind], **change)
