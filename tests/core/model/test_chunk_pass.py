"""A chunk in few operations is what the model's own layers make of it, or they are used."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from longctx.core.decode.stepping.one_token import OneToken
from longctx.core.kv.prompt import Prompt
from longctx.core.methods.reform import Method, Options
from longctx.core.model import adapter, chunk_parts, chunk_pass, running
from longctx.core.model.adapter import Decoder, EarlyExit
from longctx.core.model.chunk_parts import Gated, chunk_parts_of
from longctx.core.model.chunk_pass import agrees
from longctx.core.model.experts import Experts
from longctx.kernels.door import CLAMPED, GELU_TANH, SILU, Activation

IDS = torch.randint(0, 61, (80,), generator=torch.Generator().manual_seed(7))
# Layers whose norms subtract the mean, or in which attention and MLP have the same input.
OTHERS = {"cohere2", "gpt_neox", "stablelm", "starcoder2"}
EXPERTS = {"mixtral", "gpt_oss", "qwen2_moe", "qwen3_moe"}


def family(name: str) -> str:
    return name.split("-")[0]


def both(decoder, ids, make_memory, depth=None, monkeypatch=None):
    """States (T, E) of both ways to read."""
    own = decoder.read(ids, make_memory(), depth)
    found = decoder.chunk_pass().read(ids[None], make_memory(), depth)
    return found, own


def test_every_row_of_these_parts_is_read_so(architecture, make_model):
    decoder = Decoder(make_model(architecture))
    found = decoder.chunk_pass()
    assert (found is None) == (family(architecture) in OTHERS)
    if found is None:
        return
    kinds = {type(layer.inner) for layer in found._parts.layers}
    dense = {Gated} if family(architecture) == "qwen2_moe" else set()
    assert kinds == dense | ({Experts} if family(architecture) in EXPERTS else {Gated})
    with torch.inference_mode():
        ours, own = both(decoder, IDS, lambda: Prompt(len(IDS)))
        assert (ours - own).abs().max() < 1e-5 * own.abs().max()
        for size in (1, 17):  # after a cache, as a question is
            memories = Prompt(len(IDS)), Prompt(len(IDS))
            for memory in memories:
                decoder.read(IDS[:40], memory)
            ours = found.read(IDS[None, 40 : 40 + size], memories[0], None)
            own = decoder.read(IDS[40 : 40 + size], memories[1])
            assert (ours - own).abs().max() < 1e-5 * own.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_rounded_as_the_model_rounds(architecture, make_model, dtype):
    """Layer by layer: few entries differ, by the order of sums in a wider product."""
    decoder = Decoder(make_model(architecture, dtype))
    found = decoder.chunk_pass()
    assert (found is None) == (family(architecture) in OTHERS)
    if found is None:
        return
    with torch.inference_mode():
        own, ours = [], []
        with decoder.watched(lambda i, name, states: own.append(states[0])):
            decoder.read(IDS, Prompt(len(IDS)))
        begun = running.embedded(decoder._base, IDS[None])
        for index, part in enumerate(found._parts.layers):
            given = begun if index == 0 else own[index - 1]
            norm = chunk_pass.first_norm(given, part.attention.before)
            memory = Prompt(len(IDS))
            ours.append(found.through(index, part, given, norm, memory, None)[0])
    for one, other in zip(ours, own, strict=True):
        assert float((one != other).float().mean()) < 0.2


def test_reform_reads_the_same_so(architecture, make_model, monkeypatch):
    """Evicting, over several chunks, up to the projections of the last tapped layer."""
    decoder = Decoder(make_model(architecture))
    if decoder.chunk_pass() is None:
        return
    options = Options(((1, "k", 0), (3, "v", 0)), chunk=20, budget=24, first=2, last=4, queries=16)
    found = []
    for on in (True, False):
        monkeypatch.setattr(adapter, "wanted", lambda device, on=on: on)
        method = Method(options, decoder.layers)
        rows = []
        for chunk in IDS.split(20):
            assert decoder.read(chunk, method, method.depth) is None
            rows.append(method.rows()["embeddings"]["vectors"].float())
        found.append((torch.cat(rows), method.snapshot()))
    (vectors, snapshot), (expected, own) = found
    assert (vectors - expected).abs().max() <= 1  # of 127
    for name, tensor in own.items():
        if name.startswith("positions"):
            assert torch.equal(snapshot[name], tensor)
        elif name.startswith("keys"):
            assert (snapshot[name] - tensor).abs().max() < 1e-4


def test_it_is_used_where_it_is_wanted_and_nowhere_else(make_model, monkeypatch):
    decoder, used = Decoder(make_model("llama-default")), []
    monkeypatch.setattr(
        chunk_pass.ChunkPass, "read", lambda self, ids, *_: used.append(ids.shape[1])
    )
    decoder.read(IDS, Prompt(80))
    assert not used  # on a CPU
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    decoder.read(IDS, Prompt(80))
    decoder.read(IDS[:15], Prompt(80))
    with decoder.watched(lambda *_: None):
        decoder.read(IDS, Prompt(80))
    decoder.read(IDS[:16], Prompt(80))
    assert used == [80, 16]
    assert decoder.chunk_pass() is decoder.chunk_pass()


def test_the_variable_leaves_chunks_to_the_model(monkeypatch):
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.delenv(chunk_pass.VARIABLE, raising=False)
    assert chunk_pass.wanted(cuda)
    assert not chunk_pass.wanted(cpu)
    monkeypatch.setenv(chunk_pass.VARIABLE, "model")
    assert not chunk_pass.wanted(cuda)


def test_an_early_exit_is_passed_on(make_model, monkeypatch):
    class Ends(Prompt):
        def attend(self, layer, q, k, v):
            if layer.index == 2:
                raise EarlyExit
            return super().attend(layer, q, k, v)

    decoder = Decoder(make_model("llama-default"))
    monkeypatch.setattr(adapter, "wanted", lambda device: True)
    assert decoder.read(IDS, Ends(80), 3) is None
    with pytest.raises(EarlyExit):
        decoder.read(IDS, Ends(80))


# --- what it would not compute is found ---


def changed(parts, **fields):
    return replace(parts, layers=(replace(parts.layers[0], **fields), *parts.layers[1:]))


MUTATIONS = {
    "factor": lambda p: {"mlp": replace(p.mlp, factor=1.01)},
    "norm before": lambda p: {"attention": replace(p.attention, before=None)},
    "norm after": lambda p: {"mlp": replace(p.mlp, after=None)},
    "eps": lambda p: {"mlp": replace(p.mlp, before=p.mlp.before._replace(eps=1e-2))},
    "q norm": lambda p: {"q_norm": None},
    "k norm": lambda p: {"k_norm": p.k_norm._replace(weight=p.k_norm.weight + 0.1)},
    "activation": lambda p: {"inner": replace(p.inner, activation=Activation(SILU))},
    "gate for up": lambda p: {
        "inner": replace(
            p.inner, gate_up=p.inner.gate_up._replace(weight=p.inner.gate_up.weight.roll(48, 0))
        )
    },
    "order of q, k, v": lambda p: {"qkv": p.qkv._replace(weight=p.qkv.weight.flip(0))},
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_part_is_found(make_model, name):
    decoder = Decoder(make_model("gemma3"))
    ours = decoder.chunk_pass()
    assert agrees(ours, decoder)
    ours._parts = changed(ours._parts, **MUTATIONS[name](ours._parts.layers[0]))
    assert not agrees(ours, decoder)


def test_a_bias_counts(make_model):
    decoder = Decoder(make_model("qwen2"))
    ours = decoder.chunk_pass()
    part = ours._parts.layers[0]
    ours._parts = changed(ours._parts, qkv=part.qkv._replace(bias=None))
    assert not agrees(ours, decoder)


def test_what_a_layer_does_besides_is_found(make_model):
    decoder = Decoder(make_model("llama-default"))
    layer = decoder._base.layers[1]
    layer.register_forward_hook(lambda module, args, out: out * 1.01)
    assert decoder.chunk_pass() is None
    other = make_model("llama-default")
    other.model.layers[2].extra = nn.Linear(2, 2)
    assert Decoder(other).chunk_pass() is None


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_another_activation_is_the_models(make_model, act):
    decoder = Decoder(make_model("llama-default", hidden_act=act))
    found = decoder.chunk_pass()
    assert not isinstance(found._parts.layers[0].inner, Gated)
    with torch.inference_mode():
        ours, own = both(decoder, IDS, lambda: Prompt(80))
    assert (ours - own).abs().max() < 1e-5 * own.abs().max()


# --- experts ---


@pytest.mark.parametrize("name", ["mixtral-window", "gpt_oss", "qwen2_moe", "qwen3_moe"])
def test_experts_are_the_models_own(make_model, name):
    """The same states to the same experts, some of which get no token."""
    model = make_model(name)
    parts = chunk_parts_of(model.base_model)
    mlp, part = model.model.layers[0].mlp, parts.layers[0].inner
    assert part.block is mlp
    assert part.activation.name == (CLAMPED if name == "gpt_oss" else SILU)
    states = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(3)) * 3
    with torch.inference_mode():
        ours, own = part(states), mlp(states)
    for one, other in zip(ours, own, strict=True):
        assert (one - other).abs().max() < 1e-5
    assert "forward" not in vars(mlp.experts)


def test_experts_with_an_unknown_gate_are_the_modules(make_model):
    decoder = Decoder(make_model("qwen3_moe", hidden_act="relu"))
    inner = decoder.chunk_pass()._parts.layers[0].inner
    assert inner is decoder._base.layers[0].mlp
    wrong = Activation(GELU_TANH)
    decoder = Decoder(make_model("qwen3_moe"))
    ours = decoder.chunk_pass()
    part = ours._parts.layers[0]
    ours._parts = changed(ours._parts, inner=replace(part.inner, activation=wrong))
    assert not agrees(ours, decoder)


def test_a_decoder_is_let_go_with_its_last_use(make_model):
    decoder = Decoder(make_model("llama-default"))
    assert decoder.chunk_pass() is not None
    gone = weakref.ref(decoder)
    gc.disable()
    try:
        del decoder
        assert gone() is None
    finally:
        gc.enable()


# --- weights ---


def test_weights_are_laid_together_once(make_model):
    model = make_model("llama-default")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    decoder = Decoder(model)
    parts = decoder.chunk_pass()._parts
    again, one = chunk_parts_of(decoder._base), OneToken.of(decoder)
    layer = model.model.layers[1]
    for found in (parts.layers[1], again.layers[1]):
        assert found.qkv.weight.data_ptr() == layer.self_attn.q_proj.weight.data_ptr()
        assert found.inner.gate_up.weight.data_ptr() == layer.mlp.gate_proj.weight.data_ptr()
    assert one._parts.layers[1].qkv.weight.data_ptr() == parts.layers[1].qkv.weight.data_ptr()
    own = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
    assert torch.equal(again.layers[1].qkv.weight, torch.cat([x.weight for x in own]))
    assert {x.weight.untyped_storage().data_ptr() for x in own} == {
        parts.layers[1].qkv.weight.untyped_storage().data_ptr()
    }
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_norms_of_unknown_form_are_the_models(make_model, monkeypatch):
    monkeypatch.setattr(chunk_parts, "FORMS", ())
    assert Decoder(make_model("llama-default")).chunk_pass() is None
