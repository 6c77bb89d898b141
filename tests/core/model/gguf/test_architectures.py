"""Every architecture: a random model written as llama.cpp writes it computes the same when read."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from longctx.core.common.errors import UsageError
from longctx.core.model.architectures import ADAPTERS
from longctx.core.model.gguf.forms import FORMS, MIXTRAL, OLMO3
from longctx.core.model.gguf.model import open_gguf
from longctx.core.model.load import load_decoder

IDS = torch.randint(0, 61, (1, 80), generator=torch.Generator().manual_seed(5))
# transformers reads these itself, with tables of its own.
JUDGED = (
    *("llama-default", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma2"),
    *("gemma3", "phi3-window", "starcoder2-window"),
)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


def read(path):
    """The model in a file, by our reader alone."""
    opened = open_gguf(path)
    model = AutoModelForCausalLM.from_config(opened.config).eval()
    left = model.load_state_dict(dict(opened.tensors()), strict=False)
    assert not left.unexpected_keys
    assert {*left.missing_keys} <= {"lm_head.weight"}
    model.tie_weights()
    return opened, model


def test_it_computes_the_same(writable, write_gguf, tmp_path):
    original = write_gguf(tmp_path / "model.gguf", writable)
    opened, model = read(tmp_path / "model.gguf")
    kind = original.config.model_type
    assert opened.config.model_type == {"mistral": "llama"}.get(kind, kind)
    expected = logits(original)
    assert (logits(model) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert opened.parameters == sum(weight.numel() for weight in original.parameters())
    assert (opened.name, opened.licence) == ("random", "apache-2.0")


def test_every_supported_architecture_is_tried(all_writable, make_model):
    kinds = {form.kind for form in (*FORMS.values(), MIXTRAL, OLMO3)}
    assert kinds | {"mistral"} == {*ADAPTERS}  # a file does not tell Mistral from Llama
    assert {make_model(name).config.model_type for name in all_writable} == {*ADAPTERS}


@pytest.mark.parametrize("name", ["mixtral-window", "gpt_oss", "gpt_neox", "olmo3", "stablelm"])
def test_it_loads_as_a_folder(name, write_gguf, tmp_path):
    """As a folder of safetensors, with the self-check of every model that is loaded."""
    original = write_gguf(tmp_path / "model.gguf", name)
    opened = open_gguf(tmp_path / "model.gguf")
    save_file(dict(opened.tensors()), tmp_path / "model.safetensors", {"format": "pt"})
    opened.config.save_pretrained(tmp_path)
    decoder = load_decoder(str(tmp_path), opened.config, "cpu", torch.float32, {})
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    expected = logits(original)
    assert (logits(model) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert len(decoder.layers) == original.config.num_hidden_layers


@pytest.mark.parametrize("name", JUDGED)
def test_transformers_reads_the_same(name, write_gguf, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, name)
    opened, model = read(path)
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    ours = dict(opened.tensors())
    assert theirs["tensors"].keys() == ours.keys()
    for key, tensor in theirs["tensors"].items():
        assert torch.equal(tensor, ours[key]), key
    for key, value in theirs["config"].items():
        if key not in ("model_type", "rope_theta", "_model_name_or_path", "norm_topk_prob"):
            assert getattr(opened.config, key) == value, key


def test_llama3_scaling_is_recognized_by_its_factors(write_gguf, make_model, tmp_path):
    rope = {"original_max_position_embeddings": 8192, "rope_type": "llama3", "factor": 32.0}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500_000.0}
    for trained, kind in ((8192, "llama3"), (4096, "longrope")):
        model = make_model("llama-default")
        given = {**rope, "original_max_position_embeddings": trained}
        model.config.rope_parameters = given
        write_gguf.model(tmp_path / f"{kind}.gguf", model)
        model = type(model)(model.config)
        found = open_gguf(tmp_path / f"{kind}.gguf").config
        assert found.rope_parameters["rope_type"] == kind
        ours = type(model)(found).model.rotary_emb
        assert torch.allclose(ours.inv_freq, model.model.rotary_emb.inv_freq, rtol=1e-5)
        assert ours.attention_scaling == 1.0
        if kind == "llama3":
            assert {**found.rope_parameters} == given


def test_the_largest_gemmas_scale_queries_by_their_width(write_gguf, tmp_path):
    changes = {"num_hidden_layers": 46, "num_attention_heads": 2, "query_pre_attn_scalar": 16}
    types = ["sliding_attention", "full_attention"] * 23
    write_gguf(tmp_path / "model.gguf", "gemma2", layer_types=types, **changes)
    assert open_gguf(tmp_path / "model.gguf").config.query_pre_attn_scalar == 16


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("llama.attention.temperature_scale", 0.5, "does not know what"),
        ("llama.attention.value_length", 4, "attention.value_length is 4"),
        ("llama.rope.dimension_count", 4, "rotates 4 of the 8 dimensions"),
        ("llama.rope.scaling.type", "su", "scaled by 'su'"),
        ("llama.block_count", 3, "has 9 tensors too many"),
        ("llama.block_count", 5, "lacks 9 tensors"),
        ("llama.block_count", 100_000, "512 are the most"),
        ("llama.feed_forward_length", 64, "has the shape"),
        ("llama.embedding_length", 64, "has the shape"),
        ("llama.attention.head_count", 3, "attention heads .3."),
        ("llama.attention.head_count", [4, 4, 4, 2], "its layers differ"),
        ("llama.attention.head_count", "four", "head_count is 'four'"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "rms_epsilon is nan"),
        ("llama.context_length", None, "has no llama.context_length"),
        ("general.architecture", "mamba", "'mamba' is not supported"),
        ("general.architecture", None, "does not say its architecture"),
    ],
)
def test_what_the_metadata_must_not_say(key, value, said, write_gguf, make_model, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf.model(path, make_model("llama-default"), keys={key: value})
    with pytest.raises(UsageError, match=said) as refused:
        open_gguf(path)
    assert str(path) in str(refused.value)


def test_a_tensor_that_its_model_does_not_have_is_refused(write_gguf, make_model, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf.model(path, make_model("llama-default"), more={"blk.0.attn_gate.weight": 4})
    with pytest.raises(UsageError, match=r"'blk.0.attn_gate.weight' is none that llama models"):
        open_gguf(path)
    write_gguf.model(path, make_model("qwen3"), more={"blk.2.attn_output.bias": 32})
    with pytest.raises(UsageError, match=r"1 tensors too many, among them model.layers.2"):
        open_gguf(path)
