"""Llama as transformers computes it, without importing it: the form of `tiny`.

Importing that library's model code takes 2 to 4 times as long as torch itself. Modules and weights
have the same names here, so the adapter reads them alike. `load.py` compares the first model of a
configuration with transformers' own, and a test does with random ones. Only the usual form is here;
for a scaled rotary embedding, or any setting that is not listed, transformers runs the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from longctx.core.model.plain_config import PlainConfig
from longctx.core.model.weights import loaded_files

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Output:
    """What a decoder returns: hidden states (1, T, E)."""

    last_hidden_state: Tensor


@dataclass(frozen=True)
class Scored:
    """What the whole model returns: logits (1, T, vocabulary)."""

    logits: Tensor


class Norm(nn.Module):
    """An RMS norm, computed in float32."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes x (..., E)."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


class Rotary(nn.Module):
    """cos and sin (1, T, D) of positions."""

    rope_type = "default"
    inv_freq: Tensor

    def __init__(self, config: Any):
        super().__init__()
        # On the CPU also while weights are made on the meta device: these are not loaded.
        dims = torch.arange(0, config.head_dim, 2, dtype=torch.float, device="cpu")
        theta = config.rope_parameters["rope_theta"]
        inv_freq = 1.0 / (theta ** (dims / config.head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The tables of position_ids (1, T), in the dtype and on the device of x."""
        angles = position_ids[..., None].float() * self.inv_freq.to(x.device, torch.float)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotates q (1, H, T, D) and k (1, G, T, D); the adapter finds it by this name."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _half(q) * sin, k * cos + _half(k) * sin


def _half(x: Tensor) -> Tensor:
    middle = x.shape[-1] // 2
    return torch.cat((-x[..., middle:], x[..., :middle]), dim=-1)


Attend = Callable[..., tuple[Tensor, None]]
ATTENTIONS: dict[str, Attend] = {}  # the adapter adds its own


class Attention(nn.Module):
    """Grouped-query attention; what q, k and v attend to is the function of its configuration."""

    def __init__(self, config: Any, index: int):
        super().__init__()
        self.config, self.layer_idx = config, index
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        width, bias = config.hidden_size, config.attention_bias
        query = config.num_attention_heads * self.head_dim
        key = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(width, query, bias=bias)
        self.k_proj = nn.Linear(width, key, bias=bias)
        self.v_proj = nn.Linear(width, key, bias=bias)
        self.o_proj = nn.Linear(query, width, bias=bias)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """The output (1, T, E) for normalized states x (1, T, E)."""
        heads = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (
            project(x).view(heads).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, *tables)
        out, _ = ATTENTIONS[self.config._attn_implementation](self, q, k, v, None)
        return self.o_proj(out.reshape(*x.shape[:-1], -1).contiguous())


class Gated(nn.Module):
    """The MLP: a gate and an up projection, multiplied, and a down projection."""

    def __init__(self, config: Any):
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(width, inner, bias=bias)
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """The output (1, T, E) for normalized states x (1, T, E)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and MLP, each after a norm and added to its input."""

    def __init__(self, config: Any, index: int):
        super().__init__()
        self.self_attn = Attention(config, index)
        self.mlp = Gated(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """The layer's output states (1, T, E)."""
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), tables)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Plain(nn.Module):
    """What the adapter asks of a model of transformers."""

    config: Any

    def set_attn_implementation(self, name: str) -> None:
        """Chooses a function of `ATTENTIONS`."""
        self.config._attn_implementation = name

    @property
    def device(self) -> torch.device:
        """Of its weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        return next(self.parameters()).dtype


class PlainBase(Plain):
    """The decoder without its head."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        shape = config.vocab_size, config.hidden_size
        # Not filled: on the meta device that would import the compiler of torch.
        self.embed_tokens = nn.Embedding(*shape, _weight=torch.empty(shape))
        self.layers = nn.ModuleList(
            DecoderLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding table."""
        return self.embed_tokens

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool = False,
    ) -> Output:
        """The states (1, T, E) of ids (1, T), or of embeddings (1, T, E), after the last norm."""
        states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(states.shape[1], device=states.device)[None]
        tables = self.rotary_emb(states, position_ids)
        for layer in self.layers:
            states = layer(states, tables)
        return Output(self.norm(states))


class PlainModel(Plain):
    """The decoder with its head."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.model = PlainBase(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie_weights()

    @property
    def base_model(self) -> PlainBase:
        """The decoder without its head."""
        return self.model

    def tie_weights(self) -> None:
        """Makes the head the embedding table, if the configuration says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding table."""
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        """The head."""
        return self.lm_head

    def forward(self, **inputs: Any) -> Scored:
        """The logits for the inputs of the decoder."""
        return Scored(self.lm_head(self.model(**inputs).last_hidden_state))


def load_plain(folder: str, config: PlainConfig, dtype: torch.dtype) -> PlainModel | None:
    """A model with its weights, on the CPU.

    Args:
        folder: a folder in Hugging Face format with safetensors weights.
        config: its configuration.
        dtype: precision to compute with.

    Returns:
        None if the files hold other tensors than the model has; transformers says what is wrong.

    Raises:
        UsageError: there are no weights.
    """
    with torch.device("meta"):
        model = PlainModel(config)
    shapes = {name: weight.shape for name, weight in model.named_parameters()}  # a tied one once
    weights = dict(tensor for file in loaded_files(Path(folder)) for tensor in _tensors(file))
    if shapes != {name: weight.shape for name, weight in weights.items()}:
        return None
    if any(weight.dtype not in DTYPES for weight in weights.values()):
        return None
    weights = {name: weight.to(dtype) for name, weight in weights.items()}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    return model.eval()


def _tensors(file: Path) -> list[tuple[str, Tensor]]:
    """The tensors of a file; they are mapped, not read."""
    with safe_open(file, framework="pt") as opened:
        return [(name, opened.get_tensor(name)) for name in opened.keys()]  # noqa: SIM118
