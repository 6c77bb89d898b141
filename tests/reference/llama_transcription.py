"""A decoder of the Llama family (Llama, Qwen2, Qwen3, Mistral), token by token in float64.

The tests' truth for everything that runs a model: no batch, no cache object, no mask tensor, loops
over tokens and heads. It knows attention over candidates at consecutive positions, and no method.

Norms and softmax are float64 throughout. The rotary angles, cosines and sines alone are float32:
these decoders compute them so with float64 weights too, and the error of an angle grows with its
position, so that a float64 table would be another (if better) model.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; matrices are (out, in); biases and norms that a model lacks are None."""

    input_norm: np.ndarray
    q: np.ndarray  # (H D, E)
    k: np.ndarray  # (G D, E)
    v: np.ndarray  # (G D, E)
    o: np.ndarray  # (E, H D)
    q_bias: np.ndarray | None
    k_bias: np.ndarray | None
    v_bias: np.ndarray | None
    q_norm: np.ndarray | None  # (D,), Qwen3
    k_norm: np.ndarray | None
    mlp_norm: np.ndarray
    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True)
class Weights:
    """A whole model, float64, with the few numbers of its config that its arithmetic needs."""

    embedding: np.ndarray  # (vocabulary, E)
    layers: tuple[LayerWeights, ...]
    norm: np.ndarray
    lm_head: np.ndarray  # (vocabulary, E)
    query_heads: int
    key_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    window: int | None


def weights_of(state_dict: dict[str, torch.Tensor], config: dict[str, Any]) -> Weights:
    """Take a Hugging Face state dict in float64; a name that has no use here is an error."""
    left = {name: tensor.detach().double().numpy() for name, tensor in state_dict.items()}
    embedding = left.pop("model.embed_tokens.weight")
    weights = Weights(
        embedding=embedding,
        layers=tuple(_layer_of(left, i) for i in range(config["num_hidden_layers"])),
        norm=left.pop("model.norm.weight"),
        lm_head=left.pop("lm_head.weight", embedding),
        query_heads=config["num_attention_heads"],
        key_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        eps=config["rms_norm_eps"],
        rope_theta=config["rope_theta"],
        window=config.get("sliding_window"),
    )
    if left:
        raise ValueError(f"state dict has weights that the transcription lacks: {sorted(left)}")
    if embedding.shape[1] != config["hidden_size"]:
        raise ValueError(f"embeddings are {embedding.shape[1]} wide, not {config['hidden_size']}")
    return weights


def _layer_of(left: dict[str, np.ndarray], index: int) -> LayerWeights:
    layer = f"model.layers.{index}."
    attention, mlp = layer + "self_attn.", layer + "mlp."
    return LayerWeights(
        input_norm=left.pop(layer + "input_layernorm.weight"),
        q=left.pop(attention + "q_proj.weight"),
        k=left.pop(attention + "k_proj.weight"),
        v=left.pop(attention + "v_proj.weight"),
        o=left.pop(attention + "o_proj.weight"),
        q_bias=left.pop(attention + "q_proj.bias", None),
        k_bias=left.pop(attention + "k_proj.bias", None),
        v_bias=left.pop(attention + "v_proj.bias", None),
        q_norm=left.pop(attention + "q_norm.weight", None),
        k_norm=left.pop(attention + "k_norm.weight", None),
        mlp_norm=left.pop(layer + "post_attention_layernorm.weight"),
        gate=left.pop(mlp + "gate_proj.weight"),
        up=left.pop(mlp + "up_proj.weight"),
        down=left.pop(mlp + "down_proj.weight"),
    )


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return weight * x / math.sqrt(np.mean(x * x) + eps)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - np.max(scores))
    return powers / np.sum(powers)


def heads_of(
    x: np.ndarray,
    matrix: np.ndarray,
    bias: np.ndarray | None,
    norm: np.ndarray | None,
    w: Weights,
) -> list[np.ndarray]:
    """Project one token's normed state and cut it into heads; `norm` is per head (Qwen3)."""
    flat = matrix @ x
    if bias is not None:
        flat = flat + bias
    heads = []
    for start in range(0, len(flat), w.head_dim):
        head = flat[start : start + w.head_dim]
        heads.append(head if norm is None else rms_norm(head, norm, w.eps))
    return heads


@dataclass(frozen=True)
class States:
    """One token's attention states in one layer as the attention gets them, before rotation."""

    q: list[np.ndarray]  # H vectors of D
    k: list[np.ndarray]  # G vectors of D
    v: list[np.ndarray]  # G vectors of D


def states_of(w: Weights, layer: LayerWeights, hidden: list[np.ndarray]) -> list[States]:
    """q, k and v of every token."""
    states = []
    for token in hidden:
        x = rms_norm(token, layer.input_norm, w.eps)
        states.append(
            States(
                q=heads_of(x, layer.q, layer.q_bias, layer.q_norm, w),
                k=heads_of(x, layer.k, layer.k_bias, layer.k_norm, w),
                v=heads_of(x, layer.v, layer.v_bias, None, w),
            )
        )
    return states


def rotary_table(w: Weights, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of positions 0..length-1, (length, D) each, float32 values (see above)."""
    even = torch.arange(0, w.head_dim, 2, dtype=torch.float)
    frequencies = 1.0 / (w.rope_theta ** (even / w.head_dim))
    angles = torch.arange(length, dtype=torch.float)[:, None] * frequencies
    both_halves = torch.cat((angles, angles), dim=-1)  # dimensions d and d + D/2 turn together
    return both_halves.cos().double().numpy(), both_halves.sin().double().numpy()


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turn one vector by one position's angles."""
    half = len(x) // 2
    quarter_turn = np.concatenate((-x[half:], x[:half]))
    return x * cos + quarter_turn * sin


@dataclass(frozen=True)
class Attended:
    """What the T new tokens of one layer got from their attention."""

    output: list[list[np.ndarray]]  # [t][h]: a vector of D
    probability: list[list[np.ndarray]]  # [t][h]: one number per candidate, 0 where it is not seen


def attend(
    w: Weights,
    queries: list[list[np.ndarray]],
    keys: list[list[np.ndarray]],
    values: list[list[np.ndarray]],
) -> Attended:
    """Causal attention of T new tokens to [cache | the T tokens] at consecutive positions from 0.

    Args:
        w: the model.
        queries: [t][h], position-free.
        keys: [g][candidate], position-free, the new tokens' own last; equally many for every g.
        values: [g][candidate].
    """
    candidates = len(keys[0])
    cached = candidates - len(queries)
    cos, sin = rotary_table(w, candidates)
    turned = [
        np.array([rotate(key, cos[p], sin[p]) for p, key in enumerate(keys[g])])
        for g in range(w.key_heads)
    ]
    output: list[list[np.ndarray]] = []
    probability: list[list[np.ndarray]] = []
    for t in range(len(queries)):
        p = cached + t
        oldest = 0 if w.window is None else max(0, p - w.window + 1)  # sees positions > p - window
        output.append([])
        probability.append([])
        for h in range(w.query_heads):
            g = h // (w.query_heads // w.key_heads)
            query = rotate(queries[t][h], cos[p], sin[p])
            scores = turned[g][oldest : p + 1] @ query / math.sqrt(w.head_dim)
            seen = np.zeros(candidates)
            seen[oldest : p + 1] = softmax(scores)
            probability[t].append(seen)
            output[t].append(seen @ np.array(values[g]))
    return Attended(output, probability)


def after_attention(
    w: Weights, layer: LayerWeights, hidden: list[np.ndarray], attended: Attended
) -> list[np.ndarray]:
    """The rest of a layer: output projection, residual, gated feed-forward, residual."""
    following = []
    for t, token in enumerate(hidden):
        token = token + layer.o @ np.concatenate(attended.output[t])
        x = rms_norm(token, layer.mlp_norm, w.eps)
        gate = layer.gate @ x
        silu = gate / (1 + np.exp(-gate))
        following.append(token + layer.down @ (silu * (layer.up @ x)))
    return following


def full_logits(w: Weights, ids: list[int]) -> np.ndarray:
    """Logits of every token under the model's own causal attention, (T, vocabulary)."""
    hidden = [w.embedding[i] for i in ids]
    for layer in w.layers:
        states = states_of(w, layer, hidden)
        keys = [[s.k[g] for s in states] for g in range(w.key_heads)]
        values = [[s.v[g] for s in states] for g in range(w.key_heads)]
        hidden = after_attention(w, layer, hidden, attend(w, [s.q for s in states], keys, values))
    return np.array([w.lm_head @ rms_norm(token, w.norm, w.eps) for token in hidden])
