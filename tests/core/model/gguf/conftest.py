"""Writes random models to GGUF files as llama.cpp's conversion does.

Names come from llama.cpp's own table, in the package `gguf`; what its scripts (`conversion/*.py`)
change in weights, and which keys they write, is restated here from those scripts.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType
from torch import Tensor

ARCHES = {
    "cohere2": MODEL_ARCH.COHERE2,
    "exaone4": MODEL_ARCH.EXAONE4,
    "gemma2": MODEL_ARCH.GEMMA2,
    "gemma3_text": MODEL_ARCH.GEMMA3,
    "glm4": MODEL_ARCH.GLM4,
    "gpt_neox": MODEL_ARCH.GPTNEOX,
    "gpt_oss": MODEL_ARCH.GPT_OSS,
    "granite": MODEL_ARCH.GRANITE,
    "llama": MODEL_ARCH.LLAMA,
    "mistral": MODEL_ARCH.LLAMA,
    "mixtral": MODEL_ARCH.LLAMA,
    "olmo2": MODEL_ARCH.OLMO2,
    "olmo3": MODEL_ARCH.OLMO2,
    "phi3": MODEL_ARCH.PHI3,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen2_moe": MODEL_ARCH.QWEN2MOE,
    "qwen3": MODEL_ARCH.QWEN3,
    "qwen3_moe": MODEL_ARCH.QWEN3MOE,
    "smollm3": MODEL_ARCH.SMOLLM3,
    "stablelm": MODEL_ARCH.STABLELM,
    "starcoder2": MODEL_ARCH.STARCODER2,
}
PERMUTED = ("llama", "mistral", "mixtral", "granite", "smollm3")
SWITCHED = [*["sliding_attention"] * 3, "full_attention"]
HALF = ["sliding_attention", "full_attention"] * 2
# What models of conftest's ARCHITECTURES must be for a GGUF file to hold them.
WRITABLE: dict[str, dict[str, Any]] = {
    "llama-default": {"attention_bias": True},
    "llama-linear": {},
    "llama-yarn": {},
    "llama-llama3": {},
    "llama-one-kv-head": {"tie_word_embeddings": True},
    "mistral": {},
    "mixtral-window": {"sliding_window": None},
    "granite": {},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "qwen2": {},
    "qwen2_moe": {"mlp_only_layers": [], "use_sliding_window": False, "layer_types": None},
    "qwen3": {},
    "qwen3_moe": {"norm_topk_prob": True},
    "gemma2": {"layer_types": HALF, "query_pre_attn_scalar": 8},
    "gemma3": {
        "num_hidden_layers": 6,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"],
        "query_pre_attn_scalar": 8,
    },
    "cohere2": {"layer_types": SWITCHED},
    "exaone4": {},
    "exaone4-windows": {},
    "olmo2": {},
    "olmo3": {},
    "glm4": {"attention_bias": True},
    "phi3-longrope": {},
    "phi3-window": {},
    "gpt_neox": {},
    "gpt_oss": {"layer_types": HALF},
    "stablelm": {"use_qkv_bias": True},
    "starcoder2-window": {"sliding_window": None},
}


@pytest.fixture(params=list(WRITABLE))
def writable(request) -> str:
    """Each variant that a GGUF file can hold."""
    return request.param


@pytest.fixture(scope="session")
def all_writable() -> list[str]:
    return list(WRITABLE)


@pytest.fixture(scope="session")
def write_gguf(make_model):
    """A function that writes a variant's random model and returns the model."""

    def write(path: Path, name: str, **changes):
        model = make_model(name, **{**WRITABLE[name], **changes})
        if model.config.model_type == "gpt_oss":  # as its makers' configuration has it
            model.config.rope_parameters["truncate"] = False
            rebuilt = type(model)(model.config)
            rebuilt.load_state_dict(model.state_dict())
            model = rebuilt.eval()
        write_model(path, model)
        return model

    write.model = write_model
    return write


def as_float(name: str, tensor: Tensor) -> tuple[np.ndarray, None]:
    return np.ascontiguousarray(tensor.float().numpy()), None


def write_model(path: Path, model, values=as_float, keys=(), more=()) -> None:
    """Writes a model.

    Args:
        path: the file.
        model: a random model.
        values: gives a tensor's values and, if these are bytes, their type.
        keys: values that replace those of the metadata; None takes the key out.
        more: names and lengths of further tensors.
    """
    config = model.config
    writer = GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCHES[config.model_type]])
    writer.add_name("random")
    writer.add_license("apache-2.0")
    add_keys(writer, config)
    add_tokens(writer, config.vocab_size)
    stated = writer.kv_data[0]
    for key, value in dict(keys).items():
        stated.pop(key, None)
        if value is not None:
            add_value(writer, key, value)
    for name, tensor in [*renamed(model), *tables(config)]:
        array, kind = values(name, tensor.detach().squeeze())
        writer.add_tensor(name, array, raw_dtype=kind)
    for name, length in dict(more).items():
        writer.add_tensor(name, np.zeros(length, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_value(writer: GGUFWriter, key: str, value) -> None:
    kinds = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds |= {list: writer.add_array, bool: writer.add_bool}
    kinds[type(value)](key, value)


def add_tokens(writer: GGUFWriter, count: int) -> None:
    """A byte-level vocabulary of that many single characters."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(256 + i) for i in range(count)])
    writer.add_token_types([1] * count)
    writer.add_token_merges([f"{chr(256)} {chr(257)}"])


# --- keys ---------------------------------------------------------------------------------------


def add_keys(writer: GGUFWriter, config) -> None:
    """The keys that `TextModel.set_gguf_parameters` and those of the architectures write."""
    kind = config.model_type
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if kind != "gpt_neox":
        writer.add_head_count_kv(config.num_key_value_heads)
    if (eps := getattr(config, "rms_norm_eps", None)) is not None:
        writer.add_layer_norm_rms_eps(eps)
    for key in ("layer_norm_eps", "norm_epsilon"):
        if (eps := getattr(config, key, None)) is not None:
            writer.add_layer_norm_eps(eps)
    if kind not in ("gpt_neox", "stablelm", "phi3", "granite"):
        writer.add_key_length(8)
        writer.add_value_length(8)
    add_rope(writer, config)
    add_experts(writer, config)
    add_own(writer, config)


def add_rope(writer: GGUFWriter, config) -> None:
    kind, rope = config.model_type, config.rope_parameters
    rope = rope.get("full_attention", rope)
    if kind not in ("gemma2", "gpt_neox", "stablelm"):  # these are all of the base 10,000
        writer.add_rope_freq_base(rope["rope_theta"])
    if kind not in ("gemma2", "gemma3_text"):
        writer.add_rope_dimension_count(int(8 * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "phi3":
        trained = rope.get("original_max_position_embeddings", config.max_position_embeddings)
        writer.add_rope_scaling_orig_ctx_len(trained)
        if rope["rope_type"] == "longrope":
            scale = rope["factor"]
            attention = math.sqrt(1 + math.log(scale) / math.log(trained))
            writer.add_rope_scaling_attn_factors(attention)


def add_experts(writer: GGUFWriter, config) -> None:
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type in ("qwen2_moe", "qwen3_moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if config.model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)


def add_own(writer: GGUFWriter, config) -> None:
    """What only some architectures have."""
    kind = config.model_type
    if kind in ("llama", "mistral", "mixtral", "granite", "exaone4", "cohere2"):
        writer.add_vocab_size(config.vocab_size)
    if kind == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if kind == "cohere2":
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(RopeScalingType.NONE)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind in ("gpt_neox", "stablelm"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if kind == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
    if kind in ("cohere2", "gemma2", "gemma3_text", "gpt_oss"):
        writer.add_sliding_window(config.sliding_window)
    if kind in ("exaone4", "olmo3") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
        types = [one == "sliding_attention" for one in config.layer_types]
        writer.add_sliding_window_pattern(types)


# --- tensors ------------------------------------------------------------------------------------


def tables(config) -> Iterator[tuple[str, Tensor]]:
    """The factors of frequencies that some models have as tensors."""
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            yield f"rope_factors_{length}.weight", torch.tensor(rope[f"{length}_factor"])
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", llama3_factors(rope, 8)


def llama3_factors(rope: dict, dims: int) -> Tensor:
    trained = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for i in range(0, dims, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / dims)
        if wavelength < trained / high:
            factors.append(1.0)
        elif wavelength > trained / low:
            factors.append(rope["factor"])
        else:
            smooth = (trained / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return torch.tensor(factors)


def renamed(model) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors as the conversion writes them."""
    kind, config = model.config.model_type, model.config
    names = gguf.get_tensor_name_map(ARCHES[kind], config.num_hidden_layers)
    parameters = dict(model.named_parameters())
    stacked: dict[str, list[Tensor]] = {}
    for name, tensor in parameters.items():
        if ".norms." in name:  # StableLM's norms of single heads
            stacked.setdefault(name.partition(".norms.")[0] + ".weight", []).append(tensor)
            continue
        for own, changed in changed_by(kind, config, name, tensor):
            found = names.get_name(own, try_suffixes=(".weight", ".bias"))
            assert found, own
            yield found, changed
    for own, rows in stacked.items():
        yield names.get_name(own, try_suffixes=(".weight",)), torch.stack(rows)


def changed_by(kind: str, config, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if kind in PERMUTED and name.endswith(("q_proj.weight", "q_proj.bias")):
        yield name, permute(tensor, config.num_attention_heads)
    elif kind in PERMUTED and name.endswith(("k_proj.weight", "k_proj.bias")):
        yield name, permute(tensor, config.num_key_value_heads)
    elif kind in ("gemma2", "gemma3_text") and name.endswith("norm.weight"):
        yield name, tensor + 1
    elif kind == "gpt_neox" and "query_key_value" in name:
        rows = tensor.reshape(config.num_attention_heads, 3, 8, *tensor.shape[1:])
        yield name, torch.cat([rows[:, i].reshape(32, *tensor.shape[1:]) for i in range(3)])
    elif kind == "gpt_neox" and name == "lm_head.weight":
        yield "embed_out.weight", tensor
    elif name.endswith("sinks"):
        yield name + ".weight", tensor
    elif ".experts." in name:
        yield from experts(kind, name, tensor)
    elif kind == "mixtral" and name.endswith("mlp.gate.weight"):
        yield name.replace("mlp.gate", "block_sparse_moe.gate"), tensor
    else:
        yield name, tensor


def permute(tensor: Tensor, heads: int) -> Tensor:
    half = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, 2, half, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def experts(kind: str, name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    base, _, last = name.rpartition(".")
    if kind == "mixtral":
        base = base.replace("mlp.experts", "feed_forward.experts").removeprefix("model.")
    gate, up, down = (
        ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    )
    end = ".bias" if last.endswith("_bias") else ".weight"
    turned = kind == "gpt_oss" and end == ".weight"
    tensor = tensor.transpose(-1, -2) if turned else tensor
    if last.startswith("down"):
        yield f"{base}.{down}{end}", tensor
    elif kind == "gpt_oss":
        rows = (tensor[:, ::2], tensor[:, 1::2])
        yield f"{base}.{gate}{end}", rows[0]
        yield f"{base}.{up}{end}", rows[1]
    else:
        halves = tensor.chunk(2, dim=1)
        yield f"{base}.{gate}{end}", halves[0]
        yield f"{base}.{up}{end}", halves[1]
