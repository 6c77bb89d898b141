"""The one adapter to Hugging Face models: attention without position, and early exit.

A model is run with q and k as they are before the rotary embedding; a `Memory` decides what they
attend to and rotates them with the model's own embedding. Only this file and `load.py` touch a
transformers model. What differs between architectures is a row of `ADAPTERS`; one without a row is
refused.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from longctx.core.errors import UsageError
from longctx.core.rope import Rope

ATTENTION = "longctx"  # the name of our attention function; "flash" in it would mean something else


class EarlyExit(Exception):
    """Raised by a memory when nothing above the layer's projections is needed."""


@dataclass(frozen=True)
class Adapter:
    """What the adapter must know of an architecture.

    Attributes:
        window: the sliding window of an attention module in tokens, or None.
    """

    window: Callable[[nn.Module], int | None]


ADAPTERS = {
    "llama": Adapter(window=lambda attention: None),
    "mistral": Adapter(window=lambda attention: attention.config.sliding_window),
    "qwen2": Adapter(window=lambda attention: attention.sliding_window),
    "qwen3": Adapter(window=lambda attention: attention.sliding_window),
}


@dataclass(frozen=True)
class Layer:
    """What a memory needs of one decoder layer and must not guess.

    Attributes:
        index: 0-based.
        query_heads, kv_heads, head_dim: H, G and D.
        scale: factor on q·k.
        window: sliding window in tokens; None: full attention.
        rope: the model's own rotary embedding.
    """

    index: int
    query_heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    rope: Rope

    def rotate(self, x: Tensor, positions: Tensor | slice, length: int) -> Tensor:
        """Rotates x (heads, n, D) to n positions of a window of `length`; see `Rope.rotate`."""
        return self.rope.rotate(x, positions, length)


class Decoder:
    """A causal language model that runs over memories.

    Attributes:
        layers: one `Layer` for each decoder layer.
        device, dtype: where and in what it computes.
    """

    def __init__(self, model: PreTrainedModel):
        register()
        model.set_attn_implementation(ATTENTION)
        self._model = model.eval()
        self._base = model.base_model
        self.layers = layers_of(self._base, adapter_of(model.config))
        self.device, self.dtype = model.device, model.dtype

    @property
    def config(self) -> Any:
        """The transformers configuration."""
        return self._model.config

    @torch.inference_mode()
    def read(self, ids: Tensor, memory: Any, depth: int | None = None) -> Tensor | None:
        """Runs T tokens through the first `depth` layers, attending through a memory.

        Args:
            ids: (T,) token ids.
            memory: gets every layer's position-free q, k and v.
            depth: layers to run; None: all; 0: nothing is run.

        Returns:
            The hidden states (T, E) after the last norm; None where a memory ended the pass early.
        """
        if depth == 0:
            return None
        return run(self._base, self.layers, memory, depth, input_ids=ids[None].to(self.device))

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (n, vocabulary), float32 or wider, of hidden states (n, E)."""
        logits = self._model.get_output_embeddings()(hidden)
        return logits.float() if logits.dtype.itemsize < 4 else logits


def adapter_of(config: Any) -> Adapter:
    """The row of a configuration's architecture.

    Raises:
        UsageError: there is none.
    """
    if config.model_type not in ADAPTERS:
        raise UsageError(
            f"cannot run architecture {config.model_type!r}",
            f"this version knows {', '.join(sorted(ADAPTERS))}",
            "Name a model of one of these with --model.",
        )
    return ADAPTERS[config.model_type]


def layers_of(base: nn.Module, adapter: Adapter) -> tuple[Layer, ...]:
    """What memories need of each layer of a decoder."""
    attentions = [layer.self_attn for layer in base.layers]
    apply = sys.modules[type(attentions[0]).__module__].apply_rotary_pos_emb
    rope = Rope(base.rotary_emb, apply)
    kv_heads = base.config.num_key_value_heads
    return tuple(
        Layer(
            index=index,
            query_heads=kv_heads * attention.num_key_value_groups,
            kv_heads=kv_heads,
            head_dim=attention.head_dim,
            scale=attention.scaling,
            window=adapter.window(attention),
            rope=rope,
        )
        for index, attention in enumerate(attentions)
    )


# --- attention without position -----------------------------------------------------------------


def register() -> None:
    """Makes our attention function known by name; the model picks it up through its config."""
    AttentionInterface.register(ATTENTION, _attend)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, *, longctx, **_: Any
) -> tuple[Tensor, None]:
    memory, layers = longctx
    out = memory.attend(layers[module.layer_idx], query[0], key[0], value[0])  # (H, T, D)
    return out.transpose(0, 1)[None], None  # (1, T, H, D)


@contextmanager
def position_free(base: nn.Module) -> Iterator[None]:
    """Leaves q and k without position: the rotary module returns cos = 1 and sin = 0 meanwhile."""

    def identity(module: nn.Module, args: Any, out: tuple[Tensor, Tensor]):
        return torch.ones_like(out[0]), torch.zeros_like(out[1])

    handle = base.rotary_emb.register_forward_hook(identity)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def firstlayers_of(base: nn.Module, depth: int | None) -> Iterator[None]:
    """Shortens a decoder to its first `depth` layers meanwhile; None leaves it whole."""
    whole = base.layers
    base.layers = whole if depth is None else whole[:depth]
    try:
        yield
    finally:
        base.layers = whole


def run(
    base: nn.Module, layers: tuple[Layer, ...], memory: Any, depth: int | None, **inputs: Tensor
) -> Tensor | None:
    """One pass of input_ids or inputs_embeds (1, T, ...) over a memory; see `Decoder.read`."""
    tokens = next(iter(inputs.values())).shape[1]
    # All at position 0: the angles are ours, and a large position would change the state of
    # rotary modules whose frequencies grow with it.
    positions = torch.zeros(1, tokens, dtype=torch.long, device=base.device)
    with position_free(base), firstlayers_of(base, depth):
        try:
            out = base(**inputs, position_ids=positions, use_cache=False, longctx=(memory, layers))
        except EarlyExit:
            return None
    return out.last_hidden_state[0]  # (T, E)
