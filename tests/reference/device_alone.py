"""Fails where a step brings anything from the host, as a graph of a GPU's steps may not."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NUMBER = torch.ops.aten.fill_.Tensor  # takes what it is given as a number, not as memory


class DeviceAlone(TorchDispatchMode):
    """Fails where a tensor is made of Python numbers, but for filling another with one.

    On a GPU that is a copy from host memory: of `torch.tensor(...)`, of a list as an index, of
    `x[1] = 0` for a single entry, and of `x[mask] = 0`. `x[1:2] = 0` fills.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, torch.Tensor] = {}  # kept, so that no other gets its identity

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = tree_leaves((args, kwargs))
        assert func is NUMBER or not any(id(x) in self._made for x in given), func
        out = func(*args, **(kwargs or {}))
        if func.name().startswith("aten::lift_fresh"):
            self._made[id(out)] = out
        return out
