"""Our own Llama gives what that of transformers gives, to the last bit, and leaves it the rest."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

from longctx.core.common.errors import UsageError
from longctx.core.model import plain
from longctx.core.model.adapter import as_transformers
from longctx.core.model.files import open_model_files
from longctx.core.model.load import _WholeWindow, load_decoder, random_decoder
from longctx.core.model.plain import PlainModel
from longctx.core.model.plain_config import PlainConfig, fits

SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
CASES = {
    "usual": {},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 32, "rope_theta": 5e5},
    "one key": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
}


@pytest.fixture(params=CASES)
def folder(request, tmp_path):
    """A random model in a folder."""
    torch.manual_seed(1)
    config = LlamaConfig(**{**SMALL, **CASES[request.param]})
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def values_of(folder) -> dict:
    values = AutoConfig.from_pretrained(folder).to_dict()
    return {name: value for name, value in values.items() if name != "_name_or_path"}


def outputs(decoder, count: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(
        0, SMALL["vocab_size"], (count,), generator=torch.Generator().manual_seed(2)
    )
    states = decoder.read(ids, _WholeWindow())
    return states, decoder.logits(states)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_computes_what_transformers_computes(folder, dtype):
    config = AutoConfig.from_pretrained(folder)
    theirs = load_decoder(str(folder), config, "cpu", dtype, {})
    assert fits(values_of(folder))
    ours = load_decoder(str(folder), PlainConfig(values_of(folder)), "cpu", dtype, {})
    assert isinstance(ours._model, PlainModel)
    assert not isinstance(theirs._model, PlainModel)
    for mine, other in zip(outputs(ours), outputs(theirs), strict=True):
        assert torch.equal(mine, other)


def test_it_is_made_a_model_of_transformers(folder):
    config = PlainConfig(values_of(folder))
    decoder = load_decoder(str(folder), config, "cpu", torch.float32, {})
    ids = torch.arange(20)[None]
    own = LlamaForCausalLM.from_pretrained(folder)(ids).logits
    with decoder.as_it_is() as model, torch.inference_mode():
        torch.testing.assert_close(model(ids).logits, own, rtol=1e-5, atol=1e-5)
        ours = decoder._model.get_input_embeddings().weight
        assert model.get_input_embeddings().weight.data_ptr() == ours.data_ptr()
    assert as_transformers(model) is model
    assert random_decoder(config, "cpu", torch.float32).config.vocab_size == SMALL["vocab_size"]


def test_the_bundled_models_are_run_by_it():
    assert isinstance(open_model_files("tiny").config, PlainConfig)


@pytest.mark.parametrize(
    "other",
    [
        {"model_type": "qwen2"},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}},
        {"pretraining_tp": 2},
        {"quantization_config": {"quant_method": "fp8"}},
        {"unheard_of": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_it_does_not_compute_is_left_to_transformers(other):
    values = LlamaConfig(**SMALL).to_dict()
    values.pop("_name_or_path", None)
    assert fits(values)
    assert not fits({**values, **other})


def test_files_with_other_tensors_are_left_to_transformers(folder):
    file = folder / "model.safetensors"
    weights, config = load_file(file), PlainConfig(values_of(folder))
    save_file({**weights, "rotary.inv_freq": torch.ones(2)}, file, {"format": "pt"})
    decoder = load_decoder(str(folder), config, "cpu", torch.float32, {})
    assert not isinstance(decoder._model, PlainModel)
    weights.pop("model.norm.weight")
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UsageError, match="lack 1 tensors"):
        load_decoder(str(folder), config, "cpu", torch.float32, {})


def test_the_self_check_compares_it_with_transformers(folder, monkeypatch):
    config = PlainConfig(values_of(folder))
    half = plain._half
    monkeypatch.setattr(plain, "_half", lambda x: -half(x))
    with pytest.raises(Exception, match="cannot run this llama model exactly"):
        load_decoder(str(folder), config, "cpu", torch.float32, {})
