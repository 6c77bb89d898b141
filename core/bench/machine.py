"""What a figure was measured on."""

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from longctx.core.setup import Engine


@dataclass(frozen=True)
class Machine:
    """What a figure was measured on.

    Attributes:
        model: the shape or the model.
        device, dtype, torch, transformers: as a manifest records them.
        processor: the device's name.
        python: its version.
        threads: that the CPU computes with.
    """

    model: str
    device: str
    dtype: str
    torch: str
    transformers: str
    processor: str
    python: str
    threads: int


def machine_of(engine: Engine) -> Machine:
    """What an engine runs on."""
    return Machine(
        model=engine.files.name,
        **engine.recorded(),
        processor=_processor(engine.device),
        python=platform.python_version(),
        threads=torch.get_num_threads(),
    )


def _processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
