"""One token's keys and values into their caches, keys and queries rotated: the definition."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from longctx.kernels.choice import operation
from longctx.kernels.selected_attention_ref import rotate_half

PAGE = 16  # entries of a page


class Store(NamedTuple):
    """Where a token goes.

    Attributes:
        keys, values: (G, C, D), written to in place.
        slot: (1,) or (G,) int64 on their device, the entry of each key/value head.
    """

    keys: Tensor
    values: Tensor
    slot: Tensor


class Pages(NamedTuple):
    """Bounds and fill of each page of `PAGE` entries of a store.

    Attributes:
        low, high: (G, C / PAGE, D), minimum and maximum of its keys in every dimension.
        filled: (G, C / PAGE) int32, entries in use, always the first ones.
    """

    low: Tensor
    high: Tensor
    filled: Tensor


@operation
def append_rotated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    stores: Sequence[Store],
    pages: Pages | None = None,
) -> Tensor:
    """Writes a token to its stores, its key rotated; widens its page's bounds; rotates its queries.

    Args:
        q: position-free queries (H, 1, D).
        k, v: position-free key and value (G, 1, D).
        position: (1,) int64 on the device.
        cos, sin: (P, R) by position, for `rotate_half`; None: q and k are rotated already.
        stores: one or two.
        pages: of the last store; a token in the first entry of a page resets it.

    Returns:
        The rotated queries (H, 1, D).
    """
    if cos is not None and sin is not None:
        cos, sin = (x.index_select(0, position) for x in (cos, sin))  # (1, R)
        q, k = rotate_half(torch.cat([q, k]), cos, sin).split([len(q), len(k)])
    heads = torch.arange(len(k), device=k.device)
    for keys, values, slot in stores:
        if len(slot) == 1:  # all heads have the same entry
            keys.index_copy_(1, slot, k)
            values.index_copy_(1, slot, v)
        else:
            keys[heads, slot], values[heads, slot] = k[:, 0], v[:, 0]
    if pages is not None:
        slot = stores[-1].slot.expand(len(k))
        page, place = slot // PAGE, slot % PAGE
        fresh = (place == 0)[:, None]
        for bound, better in ((pages.low, torch.minimum), (pages.high, torch.maximum)):
            before = torch.where(fresh, k[:, 0], bound[heads, page])
            bound[heads, page] = better(before, k[:, 0])
        pages.filled[heads, page] = (place + 1).to(pages.filled.dtype)
    return q
