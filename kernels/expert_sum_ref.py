"""What a token's experts give, weighted and summed: the definition, in PyTorch."""

from torch import Tensor

from longctx.kernels.choice import operation


@operation
def expert_sum(
    rows: Tensor,
    places: Tensor,
    weights: Tensor,
    biases: Tensor | None = None,
    experts: Tensor | None = None,
) -> Tensor:
    """The weighted sum of what each token's experts give.

    Args:
        rows: (S, E), one row for each pair of token and expert.
        places: (T, K) int64, the rows of each token.
        weights: (T, K); wider than the rows, no product is rounded.
        biases: (X, E), of the experts, added to their rows; None: none.
        experts: (T, K) int64, the expert of each row, for the biases.

    Returns:
        (T, E) in the dtype of the rows; products are summed in float32 or wider.
    """
    found = rows[places]  # (T, K, E)
    if biases is not None and experts is not None:
        found = found + biases[experts]
    return (found * weights[..., None]).sum(dim=1).to(rows.dtype)
