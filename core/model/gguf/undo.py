"""Undoes what llama.cpp's conversion does to weights, one function for each of its steps.

They only move values, or subtract what was added, so that they also work on tensors without
memory (of the device `meta`), from which shapes are known before anything is read.
"""

import torch
from torch import Tensor


def unpermuted(weight: Tensor, heads: int) -> Tensor:
    """Rows of q or k of llama-like models, in transformers' order.

    llama.cpp rotates neighbouring dimensions of a head together, transformers those at half its
    size; so the conversion put the two halves of each head between one another.

    Args:
        weight: (heads * D, ...) of a weight, or (heads * D,) of a bias.
        heads: number of heads.

    Raises:
        ValueError: its rows are not that many heads.
    """
    rows, rest = weight.shape[0], weight.shape[1:]
    if rows % (2 * heads):
        raise ValueError(f"{rows} rows are not {heads} heads")
    return weight.reshape(heads, rows // heads // 2, 2, *rest).transpose(1, 2).reshape(rows, *rest)


def by_heads(weight: Tensor, heads: int) -> Tensor:
    """Rows of a fused projection: from all of q, all of k, all of v to q, k, v of each head.

    Raises:
        ValueError: its rows are not three times that many heads.
    """
    rows, rest = weight.shape[0], weight.shape[1:]
    if rows % (3 * heads):
        raise ValueError(f"{rows} rows are not q, k and v of {heads} heads")
    return weight.reshape(3, heads, rows // heads // 3, *rest).transpose(0, 1).reshape(rows, *rest)


def less_one(weight: Tensor) -> Tensor:
    """The weight of a norm that multiplies by 1 + weight: the conversion added that 1."""
    return weight.float() - 1


def as_row(weight: Tensor) -> Tensor:
    """(1, n) of a projection to one number, whose first dimension the conversion took out."""
    return weight.reshape(1, -1)


def last_two_swapped(weight: Tensor) -> Tensor:
    """Weights (E, out, in) of experts as (E, in, out); their biases (E, out) as they are."""
    return weight.transpose(-1, -2) if weight.ndim == 3 else weight


def gate_over_up(gate: Tensor, up: Tensor) -> Tensor:
    """(E, 2 * I, H): the rows of gate and then those of up, of each expert."""
    return torch.cat([gate, up], dim=1)


def gate_between_up(gate: Tensor, up: Tensor) -> Tensor:
    """(E, H, 2 * I) or (E, 2 * I): the columns of gate and up by turns, of each expert."""
    pairs = [last_two_swapped(gate), last_two_swapped(up)]
    return torch.stack(pairs, dim=-1).flatten(-2)
