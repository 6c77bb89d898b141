"""Prompts that were read, kept so that what begins in the same way is not read again.

They are kept in the device's memory for as long as the model is, up to a number of bytes; those
that were used least recently are dropped first.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from torch import Tensor

from longctx.core.kv.prompt import Prompt

ROOM = 512 << 20  # bytes


class KeptPrompts:
    """Prompts by their token ids.

    Args:
        room: bytes of keys and values that may be kept.

    Attributes:
        held_bytes: those that are.
    """

    def __init__(self, room: int = ROOM):
        self._room = room
        self._held: OrderedDict[bytes, Prompt] = OrderedDict()
        self.held_bytes = 0

    def of(
        self, beginnings: Sequence[Tensor], read: Callable[[list[Tensor]], list[Prompt]]
    ) -> list[Prompt]:
        """The prompts that have read these tokens; further ones are cut off again after use.

        Args:
            beginnings: (P,) token ids of each, all different.
            read: reads those that are not kept.
        """
        keys = [ids.numpy(force=True).tobytes() for ids in beginnings]
        lacking = [n for n, key in enumerate(keys) if key not in self._held]
        new = read([beginnings[n] for n in lacking]) if lacking else []
        found = {keys[n]: prompt for n, prompt in zip(lacking, new, strict=True)}
        self.held_bytes += sum(prompt.held_bytes for prompt in new)
        self._held |= found
        for key in keys:
            self._held.move_to_end(key)
        prompts = [self._held[key] for key in keys]
        while self.held_bytes > self._room:
            _, dropped = self._held.popitem(last=False)
            self.held_bytes -= dropped.held_bytes
        for prompt, ids in zip(prompts, beginnings, strict=True):
            prompt.cut(len(ids))
        return prompts
