"""What the layers of a model are made of, so that a chunk can pass through them in few operations.

A layer is two parts, attention and MLP, each with a norm before it, after it, or both, and each
added to its input. Which norm stands where is told by the modules' names; in which form a norm
rounds, and which activation a gate has, is found by trying. Whether all this is the model is tested
by `chunk_pass.py`. A mixture of experts is the model's own module, with its products grouped
(`experts.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from longctx.core.model.architectures import Module
from longctx.core.model.experts import experts_of
from longctx.core.model.fused_weights import (
    Matrix,
    Unusual,
    gate_up_of,
    laid_together,
    matrix_of,
    part_of,
    plain_linear,
    qkv_of,
)
from longctx.kernels.door import FORMS, GELU_TANH, SILU, Activation, Scaled, gated_product, normed

# Names of the norms before and after attention, and before and after the MLP.
ARRANGEMENTS: tuple[tuple[str | None, str | None, str | None, str | None], ...] = (
    ("input_layernorm", None, "post_attention_layernorm", None),
    (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    (
        "input_layernorm",
        "post_self_attn_layernorm",
        "post_attention_layernorm",
        "post_mlp_layernorm",
    ),
)
TRIED = 16  # rows by which a norm's form and an activation are found


@dataclass(frozen=True)
class Around:
    """What happens before and after a part of a layer.

    Attributes:
        before, after: norms of its input and output; None: none.
        factor: on its output, before that is added.
    """

    before: Scaled | None
    after: Scaled | None
    factor: float


@dataclass(frozen=True)
class Gated:
    """A gated MLP: gate and up as one product, and down."""

    gate_up: Matrix
    down: Matrix
    activation: Activation


@dataclass(frozen=True)
class ChunkLayer:
    """The parts of one layer.

    Attributes:
        attention, mlp: what is around them.
        qkv: projects to queries, keys and values, in this order.
        q_norm, k_norm: of queries and keys, for each head or for all heads of a token as one row,
            by the width of their weights; None: none.
        out: output projection of attention.
        inner: the MLP, or what stands for the model's own module with states (1, T, E).
    """

    attention: Around
    qkv: Matrix
    q_norm: Scaled | None
    k_norm: Scaled | None
    out: Matrix
    mlp: Around
    inner: Gated | Callable[[Tensor], Any]

    @property
    def place(self) -> torch.device:
        """The device of its weights."""
        return self.qkv.weight.device


@dataclass(frozen=True)
class ChunkParts:
    """The layers of a model, each on one device, and the norm after the last one."""

    layers: tuple[ChunkLayer, ...]
    norm: Scaled


def chunk_parts_of(base: Module) -> ChunkParts | None:
    """The parts of a decoder without its head; None if its layers are made of others.

    Projections that are one product here become views of one matrix; see `laid_together`. Layers
    that move to another device afterwards need new parts.
    """
    try:
        for layer in base.layers:  # check all layers before changing any
            _require_known(layer)
        norm = _norm(base.norm)
        parts = ChunkParts(tuple(_layer(layer) for layer in base.layers), norm)
    except (Unusual, AttributeError):
        return None
    weights = [(part.place, weight) for part in parts.layers for weight in _weights(part)]
    together = all(weight.device == place for place, weight in weights)
    return parts if together and len({weight.dtype for _, weight in weights}) == 1 else None


def _weights(part: ChunkLayer) -> list[Tensor]:
    """All weights of a layer but those of the model's own modules."""
    around = part.attention.before, part.attention.after, part.mlp.before, part.mlp.after
    norms = [norm for norm in (*around, part.q_norm, part.k_norm) if norm is not None]
    inner = [part.inner.gate_up, part.inner.down] if isinstance(part.inner, Gated) else []
    return [one.weight for one in (*norms, part.qkv, part.out, *inner)]


def _require_known(layer: Module) -> None:
    attention = part_of(layer, "self_attn")
    part_of(layer, "mlp")
    _arrangement(layer)
    for module in [*qkv_of(attention), part_of(attention, "o_proj")]:
        plain_linear(module)


def _arrangement(layer: Module) -> tuple[str | None, ...]:
    """The names of its norms, beside which there may only be dropout, which does nothing."""
    others = {
        name
        for name, module in layer.named_children()
        if name not in ("self_attn", "mlp") and not isinstance(module, nn.Dropout)
    }
    for names in ARRANGEMENTS:
        if others == {name for name in names if name}:
            return names
    raise Unusual


def _layer(layer: Module) -> ChunkLayer:
    attention = layer.self_attn
    norms = [None if name is None else _norm(getattr(layer, name)) for name in _arrangement(layer)]
    factor = float(getattr(layer, "residual_multiplier", 1.0))
    return ChunkLayer(
        attention=Around(norms[0], norms[1], factor),
        qkv=laid_together(qkv_of(attention)),
        q_norm=_own_norm(attention, "q_norm"),
        k_norm=_own_norm(attention, "k_norm"),
        out=matrix_of(attention.o_proj),
        mlp=Around(norms[2], norms[3], factor),
        inner=_inner(layer.mlp),
    )


def _own_norm(attention: Module, name: str) -> Scaled | None:
    norm = getattr(attention, name, None)
    return None if norm is None else _norm(norm)


@torch.inference_mode()
def _norm(module: Module) -> Scaled:
    """An RMS norm in the form that gives what the module gives."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if weight is None or weight.ndim != 1 or not isinstance(eps, float):
        raise Unusual
    x = _tried(len(weight), weight)
    expected = module(x)
    for form in FORMS:
        norm = Scaled(weight, eps, form)
        if torch.equal(normed(x, norm), expected):
            return norm
    raise Unusual


@torch.inference_mode()
def _inner(mlp: Module) -> Gated | Callable[[Tensor], Any]:
    """A gated MLP of plain projections, or experts; anything else as it is."""
    activation = getattr(mlp, "act_fn", getattr(mlp, "activation_fn", None))
    try:
        gate_up, down = gate_up_of(mlp), plain_linear(part_of(mlp, "down_proj"))
        for module in gate_up:
            plain_linear(module)
    except Unusual:
        return experts_of(mlp) or mlp
    if activation is None:
        activation = nn.functional.silu  # `plain.py` calls the function
    x = _tried(64, down.weight)
    for name in (SILU, GELU_TANH):
        found = Activation(name)
        both = torch.cat([x, torch.ones_like(x)], dim=-1)
        if torch.equal(activation(x), gated_product.definition(both, found)):
            return Gated(laid_together(gate_up), matrix_of(down), found)
    return mlp


def _tried(width: int, like: Tensor) -> Tensor:
    """States (TRIED, width) that show how something rounds."""
    x = torch.randn(TRIED, width, generator=torch.Generator().manual_seed(0)) * 3
    return x.to(like)
