"""A device that has no float64, as MPS has none: shapes and dtypes alone, which need no device.

And samples that are measured once for all calibrations.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from longctx.core.measure.calibrate import calibration

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


@pytest.fixture(scope="module")
def measured() -> dict[tuple, dict]:
    """What `measured_once` has measured."""
    return {}


@pytest.fixture
def measured_once(measured, monkeypatch) -> None:
    """A sample is measured once for all calibrations in which that is not the subject."""

    def once(measure):
        def run(engine, samples, *which):
            of = engine.files.folder, str(engine.profile.prompt), engine.window
            key = measure.__name__, *of, samples._length, vars(samples).get("_seed"), *which
            if key not in measured:
                measured[key] = measure(engine, samples, *which)
            return measured[key]

        return run

    for measure in (calibration._ranked, calibration._copy):
        monkeypatch.setattr(calibration, measure.__name__, once(measure))
