"""Which tokens of a cache and a chunk are kept, and their rows: the definitions, in PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation


class Kept(NamedTuple):
    """What each head keeps, in new memory.

    Attributes:
        keys, values: (G, n, D).
        positions: (G, n) int64.
        mass: (G, n).
    """

    keys: Tensor
    values: Tensor
    positions: Tensor
    mass: Tensor


@operation
def kept_rows(
    keys: Tensor,
    values: Tensor,
    new_keys: Tensor,
    new_values: Tensor,
    positions: Tensor,
    mass: Tensor,
    index: Tensor,
) -> Kept:
    """The rows of a cache and of a chunk after it that each head keeps, in one pass.

    Args:
        keys, values: of the cache, (G, C, D).
        new_keys, new_values: of the chunk, (G, T, D).
        positions, mass: of both, (G, C + T).
        index: (G, n) int64, rows of each head, below C + T.
    """
    wide = index[..., None].expand(-1, -1, keys.shape[-1])
    parts = (keys, new_keys), (values, new_values)
    kept = [torch.cat(part, dim=1).gather(1, wide) for part in parts]
    return Kept(kept[0], kept[1], positions.gather(1, index), mass.gather(1, index))


@operation
def heaviest_tokens(mass: Tensor, count: int, first: int = 0, last: int = 0) -> Tensor:
    """Which of S tokens each head keeps: the first, the last, and the heaviest of the rest.

    Args:
        mass: (G, S); no NaN.
        count: tokens to keep, at most S.
        first, last: of them, those that are kept whatever their mass is.

    Returns:
        (G, count) int64, ascending; ties go to the earlier token.
    """
    G, S = mass.shape
    # A stable descending sort leaves equal entries in input order.
    order = mass[:, first : S - last].argsort(dim=1, descending=True, stable=True)
    chosen = order[:, : count - first - last].sort(dim=1).values + first
    head = torch.arange(first, device=mass.device).expand(G, -1)
    tail = torch.arange(S - last, S, device=mass.device).expand(G, -1)
    return torch.cat([head, chosen, tail], dim=1)
