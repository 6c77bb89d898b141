"""A cache of retrieved blocks: those that recently received the most attention stay.

Independent of where blocks come from and what they hold.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class BlockCache:
    """Blocks by number, at most `capacity` of them.

    With every use of the cache, the worth of all blocks is multiplied by `decay`, and the blocks
    used gain the attention that they received. The block worth least is evicted, on a tie the
    earlier one; a block is never evicted for those that are used with it.

    Args:
        capacity: blocks.
        decay: factor.
        read: reads blocks (n, ...) to the model's device, by their numbers, ascending.

    Attributes:
        worth: of the blocks held, by number.
    """

    def __init__(self, capacity: int, decay: float, read: Callable[[list[int]], Tensor]):
        self.worth: dict[int, float] = {}
        self._capacity, self._decay, self._read = capacity, decay, read
        self._slots: dict[int, int] = {}  # number of a block -> where it is in the buffer
        self._buffer = torch.empty(0)  # (capacity, ...) once there is a block

    def take(self, blocks: Sequence[int]) -> Tensor:
        """Returns blocks (n, ...) used together, at most `capacity`; reads missing ones."""
        missing = [block for block in blocks if block not in self._slots]
        if missing:
            self._make_room(len(missing), set(blocks))
            self._place(missing, self._read(missing))
        slots = torch.tensor([self._slots[block] for block in blocks])
        return self._buffer[slots.to(self._buffer.device)]

    def gain(self, blocks: Sequence[int], received: Sequence[float]) -> None:
        """Records how much attention the blocks taken last received."""
        for block in self.worth:
            self.worth[block] *= self._decay
        for block, gained in zip(blocks, received, strict=True):
            self.worth[block] += gained

    def _make_room(self, count: int, used: set[int]) -> None:
        leaving = len(self._slots) + count - self._capacity
        if leaving > 0:
            others = [block for block in self._slots if block not in used]
            for block in sorted(others, key=lambda block: (self.worth[block], block))[:leaving]:
                del self._slots[block], self.worth[block]

    def _place(self, missing: list[int], read: Tensor) -> None:
        if not len(self._buffer):
            self._buffer = read.new_empty((self._capacity, *read.shape[1:]))
        taken = set(self._slots.values())
        free = (slot for slot in range(self._capacity) if slot not in taken)
        slots = dict(zip(missing, free, strict=False))
        self._buffer[torch.tensor([*slots.values()]).to(read.device)] = read
        self._slots |= slots
        self.worth |= dict.fromkeys(missing, 0.0)
