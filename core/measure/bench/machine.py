"""The machine that a figure was measured on."""

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from longctx.core.common.device import memory_limit
from longctx.core.engine.setup import Engine


@dataclass(frozen=True)
class Machine:
    """What a figure was measured on.

    Attributes:
        model: the shape or the model.
        method: that reads, and answers.
        kv_dtype: how it keeps keys and values; None: it keeps none.
        device, dtype, torch, transformers, kernels, precision: as a manifest records them.
        processor: the device's name.
        python: its version.
        threads: that the CPU computes with.
        memory_limit: bytes of the device's memory that may be used; None: all.
    """

    model: str
    method: str
    kv_dtype: str | None
    device: str
    dtype: str
    torch: str
    transformers: str
    processor: str
    python: str
    threads: int
    memory_limit: int | None
    kernels: str | None = None
    precision: str | None = None


def machine_of(engine: Engine) -> Machine:
    """What an engine runs on."""
    return Machine(
        model=engine.files.name,
        method=engine.method_name,
        kv_dtype=engine.options.reading.kv_dtype,
        **engine.recorded(),
        processor=_processor(engine.device),
        python=platform.python_version(),
        threads=torch.get_num_threads(),
        memory_limit=memory_limit(engine.device),
    )


def _processor(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
