"""Memories that keep all layers on one device, for a model whose layers are on several.

An answer's prompt is small, and what a token of it attends to is chosen for all layers at once. So
queries, keys and values come to the device where the model begins, and what is attended to goes
back to the layer. Knows no memory.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from longctx.core.common.device import moved


def as_it_is(memory: Any) -> Any:
    """The memory of a model on one device."""
    return memory


class Together:
    """Brings the layers of a model to a memory that keeps them on one device.

    Args:
        layers: the model's, as they are there.
        device: where such a memory is.
    """

    def __init__(self, layers: tuple, device: Any):
        self._layers = tuple(
            x if x.sinks is None else replace(x, sinks=x.sinks.detach().to(device)) for x in layers
        )
        self._device = device

    def __call__(self, memory: Any) -> Any:
        """The memory as the model's layers may use it, wherever they are."""
        alone = getattr(memory, "on_one_device", False)
        return _Brought(memory, self._layers, self._device) if alone else memory


class _Brought:
    """A memory on one device, for layers on any."""

    def __init__(self, memory: Any, layers: tuple, device: Any):
        self._memory, self._layers, self._device = memory, layers, device

    def attend(self, layer: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Memory.attend`."""
        there, (q, k, v) = q.device, (moved(x, self._device) for x in (q, k, v))
        return moved(self._memory.attend(self._layers[layer.index], q, k, v), there)
