"""A mixture of experts for a chunk: two grouped products, and one pass before each and after them.

The model's own module chooses the experts, and does whatever it does beside them; only what the
chosen ones compute is computed here, as transformers' grouped products do, in fewer passes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from longctx.core.model.architectures import Module
from longctx.kernels.door import (
    CLAMPED,
    GELU_TANH,
    SILU,
    Activation,
    Biases,
    expert_sum,
    gated_product,
)

ALIGNED = 8  # entries: rows of grouped products begin at multiples of 16 bytes
NOT_HERE = ("has_post_expert_norm", "_is_expert_parallel")  # what experts may have besides
TRIED = 16  # rows by which an activation is found


@dataclass(frozen=True)
class Experts:
    """The experts of a layer, and the module that sends tokens to them.

    Attributes:
        block: the MLP, called with states (1, T, E).
        module: the experts, with their weights as two tensors of three dimensions.
        activation: of gate and up.
    """

    block: Module
    module: Module
    activation: Activation

    def __call__(self, states: Tensor) -> Any:
        """What the MLP gives, its experts computed here."""
        with _computed_by(self.module, partial(_grouped, self)):
            return self.block(states)


@contextmanager
def _computed_by(module: Module, function: Any) -> Iterator[None]:
    """Inside, calls of a module go to a function."""
    module.forward = function
    try:
        yield
    finally:
        del module.forward


@torch.inference_mode()
def experts_of(mlp: Module) -> Experts | None:
    """The experts of an MLP, if they can be computed here; None if not."""
    module = getattr(mlp, "experts", None)
    weights: list[Any] = [getattr(module, name, None) for name in ("gate_up_proj", "down_proj")]
    if not isinstance(module, nn.Module) or not all(
        isinstance(weight, Tensor) and weight.ndim == 3 for weight in weights
    ):
        return None
    others = any(getattr(module, name, False) for name in NOT_HERE)
    if not getattr(module, "has_gate", False) or others or not _fits(weights):
        return None
    activation = _activation(module, weights[0])
    return None if activation is None else Experts(mlp, module, activation)


def _fits(weights: list[Any]) -> bool:
    """Whether grouped products take these weights."""
    aligned = all(n % ALIGNED == 0 for weight in weights for n in weight.shape[1:])
    there = hasattr(nn.functional, "grouped_mm") or hasattr(torch, "_grouped_mm")
    return weights[0].device.type == "cpu" or (
        aligned and there and {weight.dtype for weight in weights} == {torch.bfloat16}
    )


def _activation(module: Module, like: Tensor) -> Activation | None:
    """Which one gives what the module's own does."""
    x = torch.randn(TRIED, 2 * TRIED, generator=torch.Generator().manual_seed(0)) * 5
    x = x.to(like)
    try:
        expected = module._apply_gate(x)
    except (AttributeError, RuntimeError):
        return None
    alpha, limit = getattr(module, "alpha", 1.0), getattr(module, "limit", 0.0)
    for name in (SILU, GELU_TANH, CLAMPED):
        found = Activation(name, float(alpha), float(limit))
        if torch.equal(gated_product.definition(x, found), expected):
            return found
    return None


def _grouped(experts: Experts, states: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """What the experts give for states (T, E).

    Args:
        experts: of the layer.
        states: (T, E).
        index: (T, K) the experts of each token.
        weights: (T, K) of their outputs.
    """
    module, (T, K) = experts.module, index.shape
    flat, order = torch.sort(index.reshape(-1))
    all_experts = torch.arange(module.num_experts, device=flat.device)
    ends = torch.searchsorted(flat, all_experts, right=True).to(torch.int32)
    biases = getattr(module, "gate_up_proj_bias", None)
    up = _product(states[order // K], module.gate_up_proj, ends, module)
    more = None if biases is None else Biases(biases, flat)
    down = _product(gated_product(up, experts.activation, more), module.down_proj, ends, module)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    biases = getattr(module, "down_proj_bias", None)
    chosen = None if biases is None else index.contiguous()
    return expert_sum(down, places.view(T, K), weights.contiguous(), biases, chosen)


def _product(rows: Tensor, weights: Tensor, ends: Tensor, module: Module) -> Tensor:
    """Rows (S, in) times the matrix of their expert; `ends` (X,) says where each one's rows end."""
    weights = weights if module.is_transposed else weights.mT  # (X, in, out)
    if rows.device.type == "cpu":
        starts = [0, *ends.tolist()]
        spans = pairwise(starts)
        parts = [rows[a:b] @ weight for (a, b), weight in zip(spans, weights, strict=True)]
        return torch.cat(parts)
    grouped: Any = getattr(nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    return grouped(rows, weights, offs=ends)
