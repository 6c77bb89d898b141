"""InfLLM and Ltri-LLM over models whose layers differ: windows, no positions, sinks, soft caps."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from row_list import RowList
from sampled import covering

from longctx.core.common.errors import UsageError
from longctx.core.engine.encode import encode
from longctx.core.kv import streaming_window
from longctx.core.methods import infllm, ltri
from longctx.core.model.adapter import Decoder
from longctx.core.model.rope import NoRope

PREFIX, DOCUMENT, STEPS = 3, 105, 3
# Ids recur nowhere, so that no two tokens have equal keys, and no blocks equal scores.
ORDER = np.random.default_rng(7).permutation(400)
IDS = torch.from_numpy(ORDER[: PREFIX + DOCUMENT])
QUESTION, ANSWER = ORDER[200:211], ORDER[300 : 300 + STEPS]
SIZES = {"first": 5, "local": 24, "block": 8, "chunk": 16, "retrieved": 3, "cached": 4}
EVERYTHING = 160  # a local window with all of it
HEADS = ((0, 1, 0.3), (3, 2, 0.5))
MODELS = {  # what differs, and retrieval heads
    "gpt_oss": HEADS,  # windows in layers 1 and 2, sinks
    "gemma2": HEADS,  # windows, soft caps
    "gemma3": HEADS[1:],  # windows, two embeddings of positions; layer 0 below the first head
    "smollm3": ((1, 0, 0.3), (3, 2, 0.5)),  # the layers with heads have no positions
    "smollm3-windows": HEADS,  # windows; layer 0 has no positions
}
CASES = [(method, name) for name in MODELS for method in ("infllm", "ltri")]


def options(method, name, **changes):
    given = {**SIZES, "gather": 40, **changes}
    if method == "infllm":
        return infllm.Options(**given, vectors=2)
    return ltri.Options(**given, spans=3, vectors=5, theta=0.75, heads=MODELS[name])


def noting(kind):
    """The method, which notes the layers and blocks that it retrieves."""

    class Noting(kind):
        def __init__(self, *given):
            self.found = {}
            super().__init__(*given)

        def choose(self, layer, read, index):
            chosen = super().choose(layer, read, index)
            self.found.setdefault(layer.index, []).append(chosen.blocks.tolist())
            return chosen

    return Noting


KINDS = {"infllm": noting(infllm.Method), "ltri": noting(ltri.Method)}


def read(decoder, given):
    """A memory that read the document, and its rows."""
    kind = KINDS["ltri" if isinstance(given, ltri.Options) else "infllm"]
    memory, sink = kind(given, decoder.layers), RowList()
    list(encode(decoder, memory, IDS[:PREFIX], IDS[PREFIX:].split(37), sink))
    return memory, sink


def answer(decoder, method, question=QUESTION, steps=ANSWER):
    """Logits (1 + steps, V) after the question and after each token of the answer."""
    memory, found = method.recall(), []
    for chunk in torch.from_numpy(question).split(memory.chunk):
        hidden = decoder.read(chunk, memory)
    memory.begin_answer()
    found.append(decoder.logits(hidden[-1:]))
    for token in steps.tolist():
        found.append(decoder.logits(decoder.read(torch.tensor([token]), memory)))
    return torch.cat(found)


def distance(a, b):
    """The largest difference, of what is largest in the second."""
    return float((a - b).abs().max() / b.abs().max())


@pytest.fixture(scope="module")
def model(make_model):
    """f(name) -> a model in float32, made once."""
    return cache(lambda name: make_model(name, vocab_size=400))


@pytest.fixture(scope="module")
def asked(model):
    """f(method, name, **options) -> decoder, memory, rows and answer, made once."""

    @cache
    def made(method, name, **changes):
        decoder = Decoder(model(name))
        memory, sink = read(decoder, options(method, name, **changes))
        return decoder, memory, sink, answer(decoder, memory)

    return made


def test_the_models_are_what_they_are_here_for(model):
    layers = {name: Decoder(model(name)).layers for name in MODELS}
    for name, heads in MODELS.items():
        assert all(layers[name][index].window is None for index, *_ in heads)
        assert any(layer.window for layer in layers[name]) == (name != "smollm3")
    assert all(layer.sinks is not None for layer in layers["gpt_oss"])
    assert all(layer.softcap for layer in layers["gemma2"])
    without = [n for n, layer in enumerate(layers["smollm3"]) if isinstance(layer.rope, NoRope)]
    assert without == [1, 3]
    assert isinstance(layers["smollm3-windows"][0].rope, NoRope)


# --- limits ---


@pytest.mark.parametrize(("method", "name"), CASES)
def test_inside_the_limit_it_is_the_models_own_attention(model, asked, method, name):
    inside = asked(method, name, local=EVERYTHING)[-1]
    own = model(name)
    own.set_attn_implementation("eager")
    ids = torch.tensor([[*IDS.tolist(), *QUESTION.tolist(), *ANSWER.tolist()]])
    with torch.no_grad():
        truth = own(ids, use_cache=False).logits[0, -1 - STEPS :]
    assert distance(inside, truth) < 1e-4
    _, memory, _, beyond = asked(method, name)
    assert distance(beyond, truth) > 1e-3
    assert {*memory.found} == {0, 3} if name != "smollm3" else {*memory.found} == {0, 1, 2, 3}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_without_positions_all_blocks_are_full_attention(model, method, name):
    """Sinks, soft caps and windows count as they do where far tokens are not apart."""
    decoder = Decoder(model(name))
    decoder.layers = tuple(replace(layer, rope=NoRope()) for layer in decoder.layers)
    found = {}
    for label, changes in {
        "full": {"local": EVERYTHING},
        "all blocks": {"retrieved": 16, "cached": 16},
        "fewer": {"retrieved": 3},
    }.items():
        memory, _ = read(decoder, options(method, name, **changes))
        found[label] = answer(decoder, memory, steps=ANSWER[:0])
    assert distance(found["all blocks"], found["full"]) < 1e-4
    assert distance(found["fewer"], found["full"]) > 1e-3


def test_sinks_that_count_twice_are_noticed(model, monkeypatch):
    decoder = Decoder(model("gpt_oss"))
    decoder.layers = tuple(replace(layer, rope=NoRope()) for layer in decoder.layers)
    right, attended = streaming_window.with_sinks, streaming_window.attention_lse

    def twice(layer, q, k, v, causal):
        out, lse = attended(layer, q, k, v, causal)
        return (out, lse) if causal else right(out, lse, layer.sinks)

    memory, _ = read(decoder, options("infllm", "gpt_oss", local=EVERYTHING))
    full = answer(decoder, memory, steps=ANSWER[:0])
    monkeypatch.setattr(streaming_window, "attention_lse", twice)
    memory, _ = read(decoder, options("infllm", "gpt_oss", retrieved=16, cached=16))
    assert distance(answer(decoder, memory, steps=ANSWER[:0]), full) > 1e-3


def test_a_retrieval_head_in_a_layer_with_a_window_is_refused(model):
    decoder = Decoder(model("gpt_oss"))
    given = replace(options("ltri", "gpt_oss"), heads=((1, 0, 0.3),))
    with pytest.raises(UsageError, match="no retrieval head 0 in layer 1"):
        read(decoder, given)


# --- saving ---


@pytest.mark.parametrize(
    ("method", "name", "kv_dtype"), covering(("infllm", "ltri"), MODELS, ["auto", "int8"])
)
def test_a_restored_state_answers_to_the_bit(asked, method, name, kv_dtype):
    decoder, memory, sink, expected = asked(method, name, kv_dtype=kv_dtype)
    given = options(method, name, kv_dtype=kv_dtype)
    for reading in (False, True):
        restored = KINDS[method](given, decoder.layers)
        restored.restore(memory.snapshot(), sink, reading)
        for _ in range(2):  # the second time blocks are in the cache
            assert torch.equal(answer(decoder, restored), expected)


@pytest.mark.parametrize(("method", "name"), covering(("infllm", "ltri"), MODELS, meet=1))
def test_int8_answers_near_the_exact_one(asked, method, name):
    """Where all is in view: else what is rounded may retrieve other blocks."""
    for everything in ({"local": EVERYTHING}, {"retrieved": 16, "cached": 16}):
        exact = asked(method, name, **everything)[-1]
        rounded = asked(method, name, **everything, kv_dtype="int8")[-1]
        assert 0 < distance(rounded, exact) < 0.1


# --- an answer of Ltri-LLM ---


@pytest.mark.parametrize("name", MODELS)
def test_an_answer_makes_no_maps_and_knows_no_more(asked, name, monkeypatch):
    decoder, method, _, expected = asked("ltri", name)
    memory = method.recall()
    hidden = decoder.read(torch.from_numpy(QUESTION), memory)
    memory.begin_answer()
    for part in ("own_maps", "received"):
        monkeypatch.delattr(streaming_window, part)
    monkeypatch.setattr("longctx.core.kv.retrieving.own_maps", None)
    known = {index: layer.saved() for index, layer in memory._known.items()}
    found = [decoder.logits(hidden[-1:])]
    for token in [*ANSWER.tolist(), *ORDER[310:330].tolist()]:  # blocks leave on the way
        found.append(decoder.logits(decoder.read(torch.tensor([token]), memory)))
    assert torch.equal(torch.cat(found[: 1 + STEPS]), expected)
    for index, layer in memory._known.items():
        assert layer.saved().keys() == known[index].keys()
        assert all(torch.equal(x, known[index][n]) for n, x in layer.saved().items())
