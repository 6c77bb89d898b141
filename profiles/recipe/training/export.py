"""Writes a trained model as a standard Llama checkpoint, and reads one back to train on.

bfloat16 safetensors in shards of at most 15 MB, or one file with `join`. Knows nothing of training.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from longctx.profiles.recipe.training.model import Config, Model

SHARD_BYTES = 15_000_000
RENAMED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "o_proj": ("self_attn.o_proj",),
    "down_proj": ("mlp.down_proj",),
    "input_layernorm": ("input_layernorm",),
    "post_attention_layernorm": ("post_attention_layernorm",),
}


def rows(config: Config, name: str) -> list[int]:
    """How many rows of a fused weight each of its parts has."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {"qkv": [queries, keys, keys], "gate_up": [config.hidden] * 2}.get(name, [])


def to_llama(model: Model) -> dict[str, Tensor]:
    """The weights under the names of transformers, float32, on the CPU."""
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


def from_llama(folder: Path) -> Model:
    """A model to train on, from a checkpoint of this recipe."""
    model = Model(read_config(folder))
    state: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        state.update(load_file(path))
    with torch.no_grad():
        for name in ("embed_tokens", "norm"):
            getattr(model, name).weight.copy_(state[f"model.{name}.weight"])
        for index, layer in enumerate(model.layers):
            for name, parts in RENAMED.items():
                pieces = [state[f"model.layers.{index}.{part}.weight"] for part in parts]
                getattr(layer, name).weight.copy_(torch.cat(pieces))
    return model


def llama_config(config: Config) -> dict[str, object]:
    """config.json of transformers."""
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
        "max_position_embeddings": 4096,
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


def read_config(folder: Path) -> Config:
    """The sizes that a checkpoint's config.json states."""
    read = json.loads((folder / "config.json").read_text("utf-8"))
    return Config(
        vocab=read["vocab_size"],
        width=read["hidden_size"],
        layers=read["num_hidden_layers"],
        heads=read["num_attention_heads"],
        kv_heads=read["num_key_value_heads"],
        head_dim=read["head_dim"],
        hidden=read["intermediate_size"],
        theta=read["rope_theta"],
    )


def shards(state: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Splits the weights, in order, into shards of at most `SHARD_BYTES`."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, weight in state.items():
        if size + weight.nbytes > SHARD_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = weight
        size += weight.nbytes
    return parts


def save(model: Model, folder: Path) -> None:
    """Writes config.json, the shards and their index; what stood there before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*"):
        old.unlink()
    state = {name: weight.bfloat16() for name, weight in to_llama(model).items()}
    parts = shards(state)
    places = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
    total = sum(weight.nbytes for weight in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    config = json.dumps(llama_config(model.config), indent=1) + "\n"
    (folder / "config.json").write_text(config, "utf-8")


def join(folder: Path, out: Path) -> None:
    """Writes the shards of `folder` as one model.safetensors, with the config, to `out`."""
    state: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        state.update(load_file(path))
    out.mkdir(parents=True, exist_ok=True)
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(folder / "config.json", out / "config.json")


def main() -> None:
    """Command line: `export.py FOLDER OUT` joins the shards of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    join(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
