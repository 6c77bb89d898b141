"""Muon for the matrices: momentum whose singular values are pushed to one by Newton-Schulz steps.

Fused projections are treated as the separate matrices in them. Knows nothing of the loss.
"""

import math

import torch
from torch import Tensor

from longctx.profiles.recipe.training.model import Model

STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # the published coefficients of Muon's iteration


def orthogonal(update: Tensor) -> Tensor:
    """Matrices (N, R, C) -> roughly the nearest ones with singular values near 1, in bfloat16."""
    x = update.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon:
    """Updates all matrices of the model's layers, those of one shape together."""

    def __init__(self, model: Model, compiled: bool):
        self.groups: dict[tuple[int, int], list[tuple[torch.nn.Parameter, slice]]] = {}
        hidden = model.config.hidden
        for layer in model.layers:
            cuts = {layer.qkv: layer.sizes, layer.gate_up: [hidden, hidden]}
            for linear in (layer.qkv, layer.o_proj, layer.gate_up, layer.down_proj):
                start = 0
                for rows in cuts.get(linear, [linear.weight.shape[0]]):
                    shape = (rows, linear.weight.shape[1])
                    piece = (linear.weight, slice(start, start + rows))
                    self.groups.setdefault(shape, []).append(piece)
                    start += rows
        device = model.norm.weight.device
        self.momentum = {
            shape: torch.zeros((len(pieces), *shape), device=device)
            for shape, pieces in self.groups.items()
        }
        self.orthogonal = torch.compile(orthogonal) if compiled else orthogonal

    @torch.no_grad()
    def step(self, rate: float, decay: float, momentum: float = 0.95) -> None:
        """One update with Nesterov momentum; its root mean square is 0.2, like AdamW's."""
        for shape, pieces in self.groups.items():
            gradient = torch.stack([weight.grad[rows] for weight, rows in pieces])
            self.momentum[shape].lerp_(gradient, 1 - momentum)
            update = self.orthogonal(gradient.lerp(self.momentum[shape], momentum)).float()
            weights = [weight.data[rows] for weight, rows in pieces]
            torch._foreach_mul_(weights, 1 - rate * decay)
            torch._foreach_add_(
                weights, list(update.unbind(0)), alpha=-rate * 0.2 * math.sqrt(max(shape))
            )
