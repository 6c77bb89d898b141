"""Which tokens of a cache and a chunk are kept, and their rows: the definitions, in PyTorch."""

import torch
from torch import Tensor

from longctx.kernels.choice import operation


@operation
def kept_rows(
    keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """The rows of a cache and of a chunk after it that each head keeps, in one pass.

    Args:
        keys, values: of the cache, (G, C, D).
        new_keys, new_values: of the chunk, (G, T, D).
        index: (G, n) int64, rows of each head, below C + T.

    Returns:
        Keys and values (G, n, D) in new memory.
    """
    wide = index[..., None].expand(-1, -1, keys.shape[-1])
    parts = (keys, new_keys), (values, new_values)
    kept = [torch.cat(part, dim=1).gather(1, wide) for part in parts]
    return kept[0], kept[1]


@operation
def heaviest_tokens(mass: Tensor, count: int) -> Tensor:
    """The tokens of each head with the largest mass, ascending.

    Args:
        mass: (G, S); no NaN.
        count: tokens to keep, at most S.

    Returns:
        (G, count) int64, ascending; ties go to the earlier token.
    """
    # A stable descending sort leaves equal entries in input order.
    order = mass.argsort(dim=1, descending=True, stable=True)
    return order[:, :count].sort(dim=1).values
