"""One token in few operations: as the model itself, or refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from longctx.core.decode.policies import dense
from longctx.core.decode.stepping import one_token as one_token_module
from longctx.core.decode.stepping.one_token import OneToken, agrees
from longctx.core.kv.prompt import Prompt
from longctx.core.model import fused_weights as parts_module
from longctx.core.model.adapter import Decoder

USUAL = {"llama", "qwen2", "qwen3", "mistral", "phi3", "smollm3"}
IDS = torch.randint(0, 61, (40,), generator=torch.Generator().manual_seed(8))


def is_usual(name: str) -> bool:
    return name.split("-")[0] in USUAL


def test_it_gives_the_models_logits_or_is_refused(architecture, make_model):
    decoder = Decoder(make_model(architecture))
    ours = OneToken.of(decoder)
    assert (ours is not None) == is_usual(architecture)
    if ours is None:
        return
    memories = Prompt(len(IDS)), Prompt(len(IDS))
    for memory in memories:
        decoder.read(IDS[:30], memory)  # past the windows
    for token in IDS[30:].split(1):
        hidden, own = ours.read(token, memories[0]), decoder.read(token, memories[1])
        expected = decoder.logits(own)
        assert hidden.shape == own.shape
        assert (ours.logits(hidden) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_fifty_steps_stay_with_the_models(make_model):
    """In the buffers of dense decoding, each step on what the steps before it left there."""
    decoder = Decoder(make_model("llama-default"))
    ours, (prompt, own) = OneToken.of(decoder), (Prompt(90), Prompt(90))
    for memory in (prompt, own):
        decoder.read(IDS, memory)
    policy, token = dense.Policy(dense.Options(), prompt, 90), IDS[-1:]
    for _ in range(50):
        policy.begin_token()
        logits = ours.logits(ours.read(token, policy))
        policy.end_token()
        policy.advance()
        expected = decoder.logits(decoder.read(token, own))
        assert (logits - expected).abs().max() < 1e-4
        token = expected.argmax(dim=-1)


def test_that_it_agrees_is_remembered(make_model, monkeypatch):
    checks, tried = {}, []
    right = one_token_module.agrees
    monkeypatch.setattr(one_token_module, "agrees", lambda *x: tried.append(x) or right(*x))
    for _ in range(2):
        assert OneToken.of(Decoder(make_model("llama-default"), checks)) is not None
        assert OneToken.of(Decoder(make_model("llama-default", hidden_act="gelu"), checks)) is None
    assert len(tried) == 3  # what was refused is tried again
    assert OneToken.of(Decoder(make_model("llama-default", torch.bfloat16), checks)) is not None
    assert len(tried) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(even_architecture, make_model, dtype):
    decoder = Decoder(make_model(even_architecture, dtype))
    ours = OneToken.of(decoder)
    assert (ours is not None) == is_usual(even_architecture)
    if ours is not None:
        assert ours.logits(ours.read(IDS[:1], Prompt(1))).dtype == torch.float32


def test_biases_and_head_norms_are_the_models(make_model):
    for name, changes in {
        "qwen2": {},
        "qwen3": {"attention_bias": True},
        "llama-default": {"attention_bias": True, "mlp_bias": True},
        "mistral": {"tie_word_embeddings": True},
    }.items():
        assert OneToken.of(Decoder(make_model(name, **changes))) is not None


def test_what_the_modules_do_not_say_is_found(make_model):
    """These have the usual modules, and do something else with them."""
    neutral = {
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "logits_scaling": 1.0,
        "attention_multiplier": 0.2,  # for the memory
    }
    assert OneToken.of(Decoder(make_model("granite", **neutral))) is not None
    for name in ("embedding_multiplier", "residual_multiplier", "logits_scaling"):
        decoder = Decoder(make_model("granite", **neutral | {name: 1.2}))
        assert decoder.parts() is not None
        assert OneToken.of(decoder) is None
    assert OneToken.of(Decoder(make_model("llama-default", hidden_act="gelu"))) is None


def test_bounded_logits_are_found(make_model, monkeypatch):
    decoder = Decoder(make_model("llama-default"))
    own = Decoder.logits
    monkeypatch.setattr(Decoder, "logits", lambda self, h: torch.tanh(own(self, h) / 300) * 300)
    assert OneToken.of(decoder) is None


MUTATIONS = {
    "eps of attention": lambda p: {"attention_norm": p.attention_norm._replace(eps=1e-5)},
    "eps of the MLP": lambda p: {"mlp_norm": p.mlp_norm._replace(eps=1e-5)},
    "norm": lambda p: {"mlp_norm": p.attention_norm},
    "bias of q, k, v": lambda p: {"qkv": p.qkv._replace(bias=None)},
    "bias of out": lambda p: {"out": p.out._replace(bias=None)},
    "bias of gate and up": lambda p: {"gate_up": p.gate_up._replace(bias=None)},
    "bias of down": lambda p: {"down": p.down._replace(bias=None)},
    "order of q, k, v": lambda p: {"qkv": p.qkv._replace(weight=p.qkv.weight.flip(0))},
    "gate for up": lambda p: {"gate_up": p.gate_up._replace(weight=p.gate_up.weight.roll(48, 0))},
    "norm of queries": lambda p: {"q_norm": nn.Identity()},
    "norm of keys": lambda p: {"k_norm": p.q_norm},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_part_is_found(make_model, mutation, dtype):
    name = "qwen3" if "norm of" in mutation else "llama-default"
    biased = name == "llama-default" and "bias" in mutation
    more = {"attention_bias": True, "mlp_bias": True} if biased else {}
    decoder = Decoder(make_model(name, dtype, **more))
    whole = decoder.parts()
    layers = [*whole.layers]
    layers[2] = replace(layers[2], **MUTATIONS[mutation](layers[2]))
    assert agrees(OneToken(whole, decoder.layers), decoder)
    assert not agrees(OneToken(replace(whole, layers=tuple(layers)), decoder.layers), decoder)


@pytest.mark.parametrize("part", ["embedding", "norm", "head"])
def test_a_wrong_end_is_found(make_model, part):
    decoder = Decoder(make_model("llama-default"))
    whole = decoder.parts()
    wrong = {
        "embedding": whole.embedding * 1.001,
        "norm": whole.norm._replace(eps=1e-5),
        "head": whole.head._replace(weight=whole.head.weight * 1.001),
    }
    ours = OneToken(replace(whole, **{part: wrong[part]}), decoder.layers)
    assert not agrees(ours, decoder)


def test_weights_laid_together_are_the_models_own(make_model):
    model = make_model("qwen2")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    parts = Decoder(model).parts()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])
    for layer, part in zip(model.model.layers, parts.layers, strict=True):
        for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
            own, whole = linear.weight.untyped_storage(), part.qkv.weight.untyped_storage()
            assert own.data_ptr() == whole.data_ptr()
        gate, up = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
        assert torch.equal(torch.cat([gate, up]), part.gate_up.weight)
        assert up.untyped_storage().data_ptr() == part.gate_up.weight.untyped_storage().data_ptr()


def test_nothing_is_laid_together_of_other_models(make_model, monkeypatch):
    def refuse(linears):
        raise AssertionError("weights were moved")

    monkeypatch.setattr(parts_module, "laid_together", refuse)
    for name in ("gemma2", "gemma3", "cohere2", "gpt_oss", "olmo2"):
        assert Decoder(make_model(name)).parts() is None
    model = make_model("llama-default")
    model.model.layers[3].mlp.up_proj.weight.data = model.model.layers[3].mlp.up_proj.weight.half()
    assert Decoder(model).parts() is None
    model = make_model("llama-default")
    model.model.layers[3].mlp.up_proj.__class__ = type("Quantized", (nn.Linear,), {})
    assert Decoder(model).parts() is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama-default", "qwen2", "qwen3", "mistral", "phi3-window"])
def test_on_a_gpu(make_model, name, dtype):
    sizes = {"hidden_size": 320, "intermediate_size": 9000, "vocab_size": 1001}
    decoder = Decoder(make_model(name, **sizes).to("cuda", dtype))
    ours = OneToken.of(decoder)
    assert ours is not None
    memories = Prompt(len(IDS)), Prompt(len(IDS))
    for memory in memories:
        decoder.read(IDS[:30], memory)
    token = IDS[30:31].cuda()
    out = ours.logits(ours.read(token, memories[0]))
    expected = decoder.logits(decoder.read(token, memories[1]))
    within = 1e-4 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps
    assert (out - expected).norm() < within * expected.norm()


@pytest.mark.gpu
def test_other_models_are_refused_on_a_gpu_too(make_model):
    for name in ("gemma2", "granite", "cohere2"):
        assert OneToken.of(Decoder(make_model(name).to("cuda", torch.bfloat16))) is None
