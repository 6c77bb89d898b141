"""Whether somebody holds a rotary embedding's tables when it has let go of them."""

import weakref

import torch

from longctx.core.model.rope import Rope

OTHERS = range(2000, 9000, 1000)  # lengths of windows; more than it has tables for


def are_held(rope: Rope, length: int) -> bool:
    """Whether the tables of a window of `length` stay after those of other windows came."""
    like = torch.zeros(0)
    read = [weakref.ref(table) for table in rope.tables(length, like)]
    for other in OTHERS:
        rope.tables(other, like)
    assert rope.tables(length, like)[0] is not read[0]()  # it has made them anew
    return None not in [one() for one in read]
