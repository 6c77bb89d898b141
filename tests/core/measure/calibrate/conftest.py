"""A device that has no float64, as MPS has none: shapes and dtypes alone, which need no device."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "meta"


class WithoutFloat64(TorchDispatchMode):
    """Refuses what makes a tensor of float64 on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.device.type == DEVICE:
            assert made.dtype != torch.float64, func
        return made


@pytest.fixture
def without_float64():
    """The device's name; a number that is taken off it is a symbol."""
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), WithoutFloat64():
        yield DEVICE
