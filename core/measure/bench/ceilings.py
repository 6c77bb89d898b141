"""The ceilings: what device and disk can do at most, measured now.

Each is what a run of equal calls takes together, the best of a few runs. Knows nothing of models
but the shape of their heads.
"""

import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from longctx.core.common.errors import LongctxError
from longctx.core.model.adapter import Layer
from longctx.core.model.fused_weights import Matrix
from longctx.core.model.narrow import narrowed, scaled_product
from longctx.core.store.confined import Confined
from longctx.kernels.door import row_scaled

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
BLOCK = 1 << 24  # bytes read or written at a time
RUNS, RUN_S = 3, 0.2  # runs, and seconds that one takes at least


@dataclass(frozen=True)
class Ceilings:
    """The fastest that was seen; None where there is no such thing here.

    Attributes:
        matmul_flops: operations a second of a matrix product.
        attention_flops: of full attention, by the fastest backend.
        attention_by: the figure of each backend that runs here.
        copy_bytes_s: of a copy on the device, bytes read and written.
        to_device_bytes_s, to_host_bytes_s: between pinned host memory and the device.
        disk_write_bytes_s: of writing, until it is on the disk.
        disk_read_bytes_s: of reading with a cold page cache.
        narrow_flops: of a matrix product in the precision that reads, if it is not the dtype's.
    """

    matmul_flops: float
    attention_flops: float
    attention_by: dict[str, float]
    copy_bytes_s: float
    to_device_bytes_s: float | None
    to_host_bytes_s: float | None
    disk_write_bytes_s: float | None
    disk_read_bytes_s: float | None
    narrow_flops: float | None = None


def measure(
    layer: Layer,
    device: str,
    dtype: torch.dtype,
    folder: Path | None,
    precision: str | None = None,
) -> Ceilings:
    """Measures all ceilings; takes some seconds.

    Args:
        layer: tells the heads of the attention.
        device, dtype: where and in what.
        folder: on the disk to measure; None: no disk is.
        precision: of the products that read; None: the dtype.
    """
    large = device.startswith("cuda")
    attention = _attention(layer, device, dtype, 16384 if large else 1024)
    to_device, to_host = _transfers(device) if large else (None, None)
    write, read = _disk(folder, 1 << (30 if large else 26)) if folder else (None, None)
    return Ceilings(
        matmul_flops=_matmul(device, dtype, 8192 if large else 1024),
        attention_flops=max(attention.values()),
        attention_by=attention,
        copy_bytes_s=_copy(device, 1 << (30 if large else 27)),
        to_device_bytes_s=to_device,
        to_host_bytes_s=to_host,
        disk_write_bytes_s=write,
        disk_read_bytes_s=read,
        narrow_flops=_narrow(device, dtype, 8192 if large else 1024) if precision else None,
    )


class Clock:
    """Measures the seconds since it was made; both ends wait until the device is idle."""

    def __init__(self, device: str):
        self._device, self._started = device, 0.0
        self._started = self.seconds()

    def seconds(self) -> float:
        """Seconds until now."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        elif self._device == "mps":
            torch.mps.synchronize()
        return time.perf_counter() - self._started


def seconds(call: Callable[[], object], device: str) -> float:
    """Seconds of a call, from runs of many; the first call of all is not counted."""
    call()
    count, best = 1, float("inf")
    for _ in range(RUNS):
        took = _run(call, count, device)
        while took < RUN_S:
            count *= 2
            took = _run(call, count, device)
        best = min(best, took / count)
    return best


def _run(call: Callable[[], object], count: int, device: str) -> float:
    clock = Clock(device)
    for _ in range(count):
        call()
    return clock.seconds()


def _matmul(device: str, dtype: torch.dtype, size: int) -> float:
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    out = torch.empty_like(a)
    return 2 * size**3 / seconds(lambda: torch.mm(a, b, out=out), device)


def _narrow(device: str, dtype: torch.dtype, size: int) -> float:
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    rows, made = row_scaled(a), narrowed(Matrix(b, None))
    return 2 * size**3 / seconds(lambda: scaled_product(rows, made), device)


def _attention(layer: Layer, device: str, dtype: torch.dtype, size: int) -> dict[str, float]:
    H, G, D = layer.query_heads, layer.kv_heads, layer.head_dim
    q = torch.randn(1, H, size, D, device=device, dtype=dtype)
    k, v = torch.randn(2, 1, G, size, D, device=device, dtype=dtype)
    flop, found = 4 * H * size * size * D, {}
    for name, backend in BACKENDS.items():
        # The efficient backend takes no grouped heads. Why a backend does not run here is told in
        # warnings beside the error.
        groups = H // G if name == "efficient" else 1
        keys, values = (x.repeat_interleave(groups, dim=1) for x in (k, v))
        attend = partial(F.scaled_dot_product_attention, enable_gqa=groups == 1)
        quiet = warnings.catch_warnings(action="ignore")
        with suppress(RuntimeError), sdpa_kernel(backend), quiet:
            found[name] = flop / seconds(partial(attend, q, keys, values), device)
    if not found:
        raise LongctxError(
            f"no fused attention runs on {device} in {dtype}", "", "Use --dtype bf16."
        )
    return found


def _copy(device: str, size: int) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(lambda: target.copy_(source), device)


def _transfers(device: str) -> tuple[float, float]:
    here = torch.ones(1 << 28, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(here, device=device)
    up = seconds(lambda: there.copy_(here, non_blocking=True), device)
    down = seconds(lambda: here.copy_(there, non_blocking=True), device)
    return len(here) / up, len(here) / down


def _disk(folder: Path, size: int) -> tuple[float, float | None]:
    path, block = folder / "ceiling", os.urandom(BLOCK)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    write = size / (time.perf_counter() - started)
    read = None
    if forget(path):
        started = time.perf_counter()
        remember(path)
        read = size / (time.perf_counter() - started)
    path.unlink()
    return write, read


def forget(path: Path | Confined) -> bool:
    """Evicts a file from the page cache; False where this system cannot."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def remember(path: Path | Confined) -> bool:
    """Reads a whole file into the page cache, if there is room; True, as every system can."""
    block = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass
    return True
