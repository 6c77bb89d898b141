"""Undoes what llama.cpp's conversion does to weights, one function for each of its steps."""

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
