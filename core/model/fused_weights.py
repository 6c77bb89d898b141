"""The weights of a transformers model by role, if its modules have the usual structure.

Usual is: a norm, q, k, v and o projections, a norm, and a gated MLP in each layer, and a norm at
the end. The modules do not say what a layer does with them: callers test that with
`beginning_from`. Projections that are always used together are fused into one matrix.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from longctx.core.model.architectures import Module


class Norm(NamedTuple):
    """The weight of an RMS norm, and what it adds to the mean square."""

    weight: Tensor
    eps: float


class Matrix(NamedTuple):
    """A projection: weight (out, in) and bias (out,) or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class LayerParts:
    """The parts of one decoder layer.

    Attributes:
        attention_norm, mlp_norm: before attention and MLP.
        qkv: projects to queries, keys and values, in this order.
        q_norm, k_norm: modules applied to heads (..., D) before attention; None if none.
        out: output projection of attention.
        gate_up: projects to gate and up, in this order.
        down: down projection of the MLP.
    """

    attention_norm: Norm
    qkv: Matrix
    q_norm: nn.Module | None
    k_norm: nn.Module | None
    out: Matrix
    mlp_norm: Norm
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True)
class Parts:
    """The parts of a model: the embedding table (V, E), its layers, the last norm and the head."""

    embedding: Tensor
    layers: tuple[LayerParts, ...]
    norm: Norm
    head: Matrix


class Unusual(Exception):
    """A module is missing or of an unusual kind."""


def parts_of(model: Module) -> Parts | None:
    """A transformers model's parts; None if they are not the usual ones.

    Fused projections of a layer become views of one matrix: the model computes the same as
    before, and only during the call are one layer's projections held twice.
    """
    base = model.base_model
    if len({(weight.dtype, weight.device) for weight in model.parameters()}) > 1:
        return None
    try:
        for layer in base.layers:  # check all layers before changing any
            _require_usual(layer)
        norm, head = _norm(base, "norm"), matrix_of(plain_linear(model.get_output_embeddings()))
        layers = tuple(_layer_parts(layer) for layer in base.layers)
    except Unusual:
        return None
    return Parts(model.get_input_embeddings().weight, layers, norm, head)


def _require_usual(layer: Module) -> None:
    attention, mlp = part_of(layer, "self_attn"), part_of(layer, "mlp")
    for name in ("input_layernorm", "post_attention_layernorm"):
        _norm(layer, name)
    ends = [part_of(attention, "o_proj"), part_of(mlp, "down_proj")]
    for module in [*qkv_of(attention), *gate_up_of(mlp), *ends]:
        plain_linear(module)


def _layer_parts(layer: Module) -> LayerParts:
    attention, mlp = layer.self_attn, layer.mlp
    return LayerParts(
        attention_norm=_norm(layer, "input_layernorm"),
        qkv=laid_together(qkv_of(attention)),
        q_norm=getattr(attention, "q_norm", None),
        k_norm=getattr(attention, "k_norm", None),
        out=matrix_of(attention.o_proj),
        mlp_norm=_norm(layer, "post_attention_layernorm"),
        gate_up=laid_together(gate_up_of(mlp)),
        down=matrix_of(mlp.down_proj),
    )


def qkv_of(attention: Module) -> list[Module]:
    """The projections to queries, keys and values, in one or in three; raises Unusual."""
    if hasattr(attention, "qkv_proj"):
        return [attention.qkv_proj]
    return [part_of(attention, name) for name in ("q_proj", "k_proj", "v_proj")]


def gate_up_of(mlp: Module) -> list[Module]:
    """The projections to gate and up, in one or in two; raises Unusual."""
    if hasattr(mlp, "gate_up_proj"):
        return [mlp.gate_up_proj]
    return [part_of(mlp, name) for name in ("gate_proj", "up_proj")]


def part_of(module: Module, name: str) -> Module:
    """A module inside another; raises Unusual if it is not there."""
    part = getattr(module, name, None)
    if not isinstance(part, nn.Module):
        raise Unusual
    return part


def _norm(module: Module, name: str) -> Norm:
    norm = part_of(module, name)
    weight, eps = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
    if weight is None or eps is None:
        raise Unusual
    return Norm(weight, eps)


def plain_linear(module: Any) -> nn.Linear:
    """A plain projection: subclasses, such as quantized ones, compute differently."""
    if type(module) is not nn.Linear:
        raise Unusual
    return module


def matrix_of(linear: nn.Linear) -> Matrix:
    """The weight and bias of a projection."""
    return Matrix(linear.weight, linear.bias)


@torch.inference_mode(False)
@torch.no_grad()
def laid_together(linears: list[nn.Linear]) -> Matrix:
    """One matrix with the rows of several projections, which become views of it.

    What lies together already stays where it is.
    """
    if len(linears) == 1:
        return matrix_of(linears[0])
    rows = [len(linear.weight) for linear in linears]
    weight = _together([linear.weight for linear in linears])
    if weight is None:
        weight = torch.cat([linear.weight for linear in linears])
        for linear, own in zip(linears, weight.split(rows), strict=True):
            linear.weight.data = own
        if weight.device.type == "cuda":  # no freed block has the size of the next ones
            torch.cuda.empty_cache()
    if all(linear.bias is None for linear in linears):
        return Matrix(weight, None)
    biases = [weight.new_zeros(n) for n in rows]
    for bias, linear in zip(biases, linears, strict=True):
        if linear.bias is not None:
            bias.copy_(linear.bias)
    return Matrix(weight, torch.cat(biases))


def _together(weights: list[Tensor]) -> Tensor | None:
    """The matrix of which these are all rows, in this order; None if there is none."""
    first, columns = weights[0], weights[0].shape[1]
    place = first.data_ptr()
    for weight in weights:
        same = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and weight.is_contiguous() and weight.data_ptr() == place):
            return None
        place += weight.numel() * weight.element_size()
    rows = sum(len(weight) for weight in weights)
    return first.data.as_strided((rows, columns), (columns, 1))


# --- for testing what a model does with its parts -----------------------------------------------


@dataclass
class Trace:
    """What went through a model's layers, in order.

    Attributes:
        given: the original input (T, E) of each layer, and finally of the last norm.
        gave: the output (T, E) of each layer for the states that replaced its input.
    """

    given: list[Tensor] = field(default_factory=list)
    gave: list[Tensor] = field(default_factory=list)


@contextmanager
def beginning_from(base: Module, states: Tensor) -> Iterator[Trace]:
    """Inside, each layer, and the last norm, begins from given states.

    Args:
        base: a decoder without its head, with the usual parts.
        states: (L + 1, T, E).
    """
    trace = Trace()

    def begin(state: Tensor) -> Callable:
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            given = args[0] if args else kwargs["hidden_states"]
            trace.given.append(given[0])
            here = state[None].to(given.device)  # layers may be on several devices
            if args:
                return (here, *args[1:]), kwargs
            return args, kwargs | {"hidden_states": here}

        return hook

    def end(module: nn.Module, args: tuple, out: Any) -> None:
        trace.gave.append((out if torch.is_tensor(out) else out[0])[0])

    modules = [*base.layers, base.norm]
    handles = [layer.register_forward_hook(end) for layer in base.layers]
    for module, state in zip(modules, states, strict=True):
        handles.append(module.register_forward_pre_hook(begin(state), with_kwargs=True))
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()
