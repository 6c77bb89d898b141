"""The lowest layers of a Llama of the usual form, in float32 by numpy.

The same as `core/model/plain.py`, up to where REFORM ends a pass: the projections of the last layer
that it taps. Weights are mapped, and converted when first used. Knows nothing of documents.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longctx.core.common.regular_files import open_regular
from longctx.core.model.weights import loaded_files, tensors_of

Floats = NDArray[np.float32]
Attend = Callable[[int, Floats, Floats, Floats], Floats]  # layer, position-free q, k and v

STORED = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}
EMBEDDED = "model.embed_tokens.weight"
BLOCK = 256  # queries at a time
_LENGTH = 8  # bytes before a file's header, that say how long it is


class Llama:
    """A model's token embeddings and first layers.

    Args:
        config: of the model; `plain_config.fits` it, and it has no biases.
        folder: with its safetensors weights.
        depth: layers that run, the last one up to its projections.

    Raises:
        UsageError: a file cannot be read.
        ValueError: a weight is missing, or of another shape, or of a type that is not in `STORED`.
    """

    def __init__(self, config: Any, folder: Path, depth: int):
        self._config, self.depth = config, depth
        self._mapped = {
            name: array for file in loaded_files(folder) for name, array in _mapped(file).items()
        }
        self._converted: dict[str, Floats] = {}
        shapes = _shapes(config, depth)
        found = {name: self._mapped[name].shape for name in shapes if name in self._mapped}
        if found != shapes:
            raise ValueError("its weights are not those of its configuration")

    @property
    def heads(self) -> tuple[int, int]:
        """Query heads H and key/value heads G of a layer."""
        return self._config.num_attention_heads, self._config.num_key_value_heads

    @property
    def head_dim(self) -> int:
        """Width D of a head."""
        return self._config.head_dim

    @property
    def scale(self) -> float:
        """The factor on q·k."""
        return self._config.head_dim**-0.5

    def read(self, ids: NDArray[np.int64], attend: Attend) -> None:
        """Runs T tokens through the layers.

        Args:
            ids: (T,) each below the size of the vocabulary.
            attend: gets each layer's index with position-free q (H, T, D), k and v (G, T, D), and
                gives the attention output (H, T, D); that of the last layer is not used.
        """
        states = floats(self._mapped[EMBEDDED][ids])
        for index in range(self.depth):
            normal = self._norm(states, f"{_layer(index)}input_layernorm")
            q, k, v = (
                self._split(self._linear(normal, f"{_layer(index)}self_attn.{kind}_proj"))
                for kind in "qkv"
            )
            out = attend(index, q, k, v)
            if index == self.depth - 1:
                return
            joined = out.transpose(1, 0, 2).reshape(len(ids), -1)
            states = states + self._linear(joined, f"{_layer(index)}self_attn.o_proj")
            normal = self._norm(states, f"{_layer(index)}post_attention_layernorm")
            gate = self._linear(normal, f"{_layer(index)}mlp.gate_proj")
            up = self._linear(normal, f"{_layer(index)}mlp.up_proj")
            inner = gate / (np.float32(1) + np.exp(-gate)) * up
            states = states + self._linear(inner, f"{_layer(index)}mlp.down_proj")

    def rotate(self, x: Floats, first: int) -> Floats:
        """Rotates x (heads, n, D) to the positions from `first` on."""
        dim = self._config.head_dim
        theta = self._config.rope_parameters["rope_theta"]
        frequencies = (1 / theta ** (np.arange(0, dim, 2) / dim)).astype(np.float32)
        positions = np.arange(first, first + x.shape[1], dtype=np.float32)
        angles = np.tile(positions[:, None] * frequencies, 2)  # (n, D)
        half = np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], axis=-1)
        return x * np.cos(angles) + half * np.sin(angles)

    def _split(self, x: Floats) -> Floats:
        """(heads, T, D) of projected states (T, heads * D)."""
        return x.reshape(len(x), -1, self._config.head_dim).transpose(1, 0, 2)

    def _norm(self, x: Floats, name: str) -> Floats:
        mean = np.square(x).mean(-1, keepdims=True, dtype=np.float32)
        return self._weight(name) * (x / np.sqrt(mean + np.float32(self._config.rms_norm_eps)))

    def _linear(self, x: Floats, name: str) -> Floats:
        return x @ self._weight(name).T

    def _weight(self, name: str) -> Floats:
        name = f"{name}.weight"
        if name not in self._converted:
            self._converted[name] = floats(self._mapped[name])
        return self._converted[name]


def attention(q: Floats, k: Floats, v: Floats, scale: float) -> Floats:
    """Attention (H, T, D) of T queries at the last T of S positions; see `causal_attention`."""
    (_, T, _), (G, S, _) = q.shape, k.shape
    out = np.empty_like(q)
    for start in range(0, T, BLOCK):
        end = min(T, start + BLOCK)
        seen = S - T + end  # keys up to the block's last query
        weights = attended(q[:, start:end], k[:, :seen], scale)  # (G, H/G, t, seen)
        found = weights.reshape(G, -1, seen) @ v[:, :seen]
        out[:, start:end] = found.reshape(q.shape[0], end - start, -1)
    return out


def attended(q: Floats, k: Floats, scale: float) -> Floats:
    """The attention (G, H/G, T, S) of queries (H, T, D) at the last T of S positions."""
    (H, T, D), (G, S, _) = q.shape, k.shape
    logits = q.reshape(G, H // G * T, D) @ k.transpose(0, 2, 1)
    logits = (logits * np.float32(scale)).reshape(G, H // G, T, S)
    future = np.triu(np.ones((T, T), bool), 1)
    logits[..., S - T :][..., future] = -np.inf
    logits -= logits.max(-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(-1, keepdims=True)
    return logits


def _layer(index: int) -> str:
    return f"model.layers.{index}."


def _shapes(config: Any, depth: int) -> dict[str, tuple[int, ...]]:
    """The weights of the layers, and of the token embeddings."""
    width, inner = config.hidden_size, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    lower: dict[str, tuple[int, ...]] = {
        **{"input_layernorm": (width,), "self_attn.q_proj": (query, width)},
        **{"self_attn.k_proj": (key, width), "self_attn.v_proj": (key, width)},
    }
    upper = {
        **{"self_attn.o_proj": (width, query), "post_attention_layernorm": (width,)},
        **{"mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width)},
        "mlp.down_proj": (width, inner),
    }
    shapes = {
        f"{_layer(index)}{part}.weight": shape
        for index in range(depth)
        for part, shape in (lower if index == depth - 1 else lower | upper).items()
    }
    return {**shapes, EMBEDDED: (config.vocab_size, width)}


def layer_bytes(config: Any, depth: int) -> int:
    """Bytes of the layers in float32."""
    shapes = _shapes(config, depth)
    return sum(4 * math.prod(shape) for name, shape in shapes.items() if name != EMBEDDED)


def _mapped(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a file that are of a known type, not read yet."""
    entries = tensors_of(file)
    with open_regular(file) as opened:
        length = int.from_bytes(opened.read(_LENGTH), "little")
        data = np.memmap(opened, np.uint8, "r", _LENGTH + length)
    found = {}
    for name, entry in entries.items():
        start, end = entry["data_offsets"]
        if entry["dtype"] in STORED and start < end:
            array = np.frombuffer(data[start:end], STORED[entry["dtype"]])
            found[name] = array.reshape(entry["shape"])
    return found


def floats(array: np.ndarray) -> Floats:
    """Numbers of `STORED` in float32; bfloat16 is its upper half."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
