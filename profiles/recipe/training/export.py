"""Writes a trained model as a standard Llama checkpoint, and reads one back to continue training.

Knows nothing of training.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from longctx.profiles.recipe.training.model import Config, Model

RENAMED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "o_proj": ("self_attn.o_proj",),
    "down_proj": ("mlp.down_proj",),
    "input_layernorm": ("input_layernorm",),
    "post_attention_layernorm": ("post_attention_layernorm",),
}


def rows(config: Config, name: str) -> list[int]:
    """The number of rows of each part of a fused weight."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {"qkv": [queries, keys, keys], "gate_up": [config.hidden] * 2}.get(name, [])


def to_llama(model: Model) -> dict[str, Tensor]:
    """The weights under transformers' names, float32, on the CPU."""
    state = {
        f"model.{name}.weight": getattr(model, name).weight for name in ("embed_tokens", "norm")
    }
    for index, layer in enumerate(model.layers):
        for name, parts in RENAMED.items():
            weight = getattr(layer, name).weight
            pieces = weight.split(rows(model.config, name)) if len(parts) > 1 else [weight]
            for part, piece in zip(parts, pieces, strict=True):
                state[f"model.layers.{index}.{part}.weight"] = piece
    return {name: weight.detach().float().cpu().clone() for name, weight in state.items()}


def from_llama(folder: Path, config: Config) -> Model:
    """A model to continue training, from a checkpoint of this recipe with the same sizes."""
    model, state = Model(config), load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name in ("embed_tokens", "norm"):
            getattr(model, name).weight.copy_(state[f"model.{name}.weight"])
        for index, layer in enumerate(model.layers):
            for name, parts in RENAMED.items():
                pieces = [state[f"model.layers.{index}.{part}.weight"] for part in parts]
                getattr(layer, name).weight.copy_(torch.cat(pieces))
    return model


def llama_config(config: Config) -> dict[str, object]:
    """The contents of transformers' config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.window,
        "rms_norm_eps": config.epsilon,
        "rope_theta": config.theta,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "initializer_range": 0.02,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def save(model: Model, folder: Path) -> None:
    """Writes config.json and model.safetensors in bfloat16, over existing ones."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: weight.bfloat16() for name, weight in to_llama(model).items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.dumps(llama_config(model.config), indent=1) + "\n"
    (folder / "config.json").write_text(config, "utf-8")
