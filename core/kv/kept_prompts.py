"""Prompts that were read, kept so that what begins in the same way is not read again.

They are kept in the device's memory for as long as the model is, up to a number of bytes; those
that were used least recently are dropped first.
"""

from collections import OrderedDict
from collections.abc import Callable

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

    def of(self, ids: Tensor, read: Callable[[], Prompt]) -> Prompt:
        """The prompt that has read these tokens; further ones are cut off again after use.

        Args:
            ids: (P,) token ids.
            read: reads them.
        """
        key = ids.numpy(force=True).tobytes()
        prompt = self._held.get(key)
        if prompt is None:
            prompt = read()
            self._held[key] = prompt
            self.held_bytes += prompt.held_bytes
        self._held.move_to_end(key)
        while self.held_bytes > self._room:
            _, dropped = self._held.popitem(last=False)
            self.held_bytes -= dropped.held_bytes
        prompt.cut(len(ids))
        return prompt
