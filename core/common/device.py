"""The device and precision to compute with, and how much memory is free there.

Knows nothing of models.
"""

import os
import platform
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from longctx.core.common import cores
from longctx.core.common.dtypes import short
from longctx.core.common.errors import UsageError

PINNING = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
ALLOCATORS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_idle: int | None = None  # cores, when a model was first prepared
_limits: dict[int, int] = {}  # index of a GPU -> bytes of it that this process may use


def choose_device(name: str = "auto") -> str:
    """A torch device name for `auto`, `cpu`, `mps`, `cuda` or `cuda:N`.

    Raises:
        UsageError: there is no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return choose_device("cuda")
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if kind == "cuda" else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if kind not in counts or (number and not number.isdigit()):
        raise UsageError(f"unknown device {name!r}", "", "Use auto, cpu, mps, cuda or cuda:N.")
    if int(number or 0) >= counts[kind]:
        raise UsageError(
            f"no device {name!r} here", f"{counts[kind]} of this kind found", "Try --device auto."
        )
    if kind == "cuda":
        _pin_in_threads()
    return name


def choose_devices(names: str) -> tuple[str, ...]:
    """Torch device names for names with commas between, or `all`: every GPU.

    Raises:
        UsageError: there is no such device.
    """
    if names.strip() == "all":
        count = torch.cuda.device_count()
        if not count:
            raise UsageError("no GPU was found for --devices all", "", "Name devices: cpu,cpu.")
        names = ",".join(f"cuda:{number}" for number in range(count))
    chosen = tuple(choose_device(name.strip()) for name in names.split(","))
    return tuple("cuda:0" if name == "cuda" else name for name in chosen)


def _pin_in_threads() -> None:
    """Has several threads pin host memory: three times as fast, and launches wait for none of it.

    What a user has set for PyTorch's allocators stays as it is. Elsewhere a GPU may see such memory
    at other addresses than the host, which PyTorch refuses.
    """
    known = any(name in os.environ for name in ALLOCATORS)
    usual = sys.platform == "linux" and platform.machine() == "x86_64"
    if torch.version.cuda and usual and not known:
        # Versions before 2.12 warn where only the older name is set, and some read only that one.
        os.environ.update(dict.fromkeys(ALLOCATORS[:2], PINNING))


def choose_dtype(name: str, device: str) -> torch.dtype:
    """The dtype for `auto`, `bf16`, `fp16` or `fp32`, or a name of torch's, on a device.

    `auto` is bf16 on a GPU and on a CPU with bf16 matrix units, else fp32.

    Raises:
        UsageError: unknown name.
    """
    if name == "auto":
        return torch.bfloat16 if device != "cpu" or _cpu_multiplies_bf16() else torch.float32
    if short(name) not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}", "", f"Use auto, {', '.join(DTYPES)}.")
    return DTYPES[short(name)]


def dtype_name(dtype: torch.dtype) -> str:
    """The short name of a dtype, as `choose_dtype` accepts it."""
    return {value: key for key, value in DTYPES.items()}.get(dtype, str(dtype).split(".")[-1])


def device_name(device: str) -> str:
    """The name of a GPU, or the machine's processor type."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()


def set_threads(threads: int | None) -> None:
    """Uses `threads` CPU threads; None: PyTorch's choice, but no more than cores are idle."""
    if threads is None:
        global _idle
        _idle = _idle or cores.idle()  # found once: later, our own threads are what is busy
        if _idle is not None:
            torch.set_num_threads(min(_idle, torch.get_num_threads()))
    else:
        if threads < 1:
            raise UsageError(f"cannot use {threads} threads", "", "Give --threads 1 or more.")
        torch.set_num_threads(threads)


def free_memory(device: str) -> int | None:
    """Bytes free for this process on a device; None if the platform does not report it."""
    if not device.startswith("cuda"):
        return _free_host_memory()
    free, limit = torch.cuda.mem_get_info(device)[0], memory_limit(device)
    if limit is None:
        return free
    return max(0, min(free, limit - torch.cuda.memory_reserved(device)))


def limit_memory(device: str, limit: int) -> None:
    """Limits how much of a GPU's memory this process uses, CUDA context not included.

    Args:
        device: a GPU.
        limit: in bytes.

    Raises:
        UsageError: the device is not a GPU.
    """
    if not device.startswith("cuda"):
        raise UsageError(
            f"cannot limit the memory of the device {device!r}",
            "it is not an NVIDIA GPU",
            "Leave --gpu-memory out, or use --device cuda.",
        )
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), _number(device))
    _limits[_number(device)] = limit


def memory_limit(device: str) -> int | None:
    """Bytes that `limit_memory` allows; None if unlimited."""
    return _limits.get(_number(device)) if _limits else None


def _number(device: str) -> int:
    number = torch.device(device).index
    return torch.cuda.current_device() if number is None else number


def peak_memory(device: str) -> int | None:
    """The most bytes that this process has held on a device; None if unknown."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def held_memory(device: str) -> int | None:
    """The bytes that this process holds on a GPU now; None elsewhere."""
    return torch.cuda.memory_allocated(device) if device.startswith("cuda") else None


def reset_peak_memory(device: str) -> None:
    """Resets `peak_memory`; has no effect on the CPU, where a process cannot reset it."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)


def synchronize(device: str) -> None:
    """Waits until the device has finished all queued work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()


def empty_cache(device: str) -> None:
    """Returns unused cached memory to the device."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def idle_memory(device: str) -> int:
    """Bytes that PyTorch keeps on a GPU for later tensors; other processes see them in use."""
    if not device.startswith("cuda"):
        return 0
    return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that a device, or the computer, is out of memory."""
    named = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return named or "can't allocate memory" in str(error)  # the CPU's is known only by its message


def _free_host_memory() -> int | None:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _cpu_multiplies_bf16() -> bool:
    return any(
        getattr(torch.cpu, probe, bool)()
        for probe in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor on a device; no GPU waits for that, and the host only for what comes to it.

    A copy between two GPUs begins when both have done what they were given, so it is made in a
    stream of its own, one for each two: neither the first GPU waits for it nor what goes to others.
    """
    place = torch.device(device)
    if tensor.device == place or not (tensor.is_cuda and place.type == "cuda"):
        # The host does not wait for a copy to a GPU; one from a GPU it must, to read what came.
        return tensor.to(place, non_blocking=place.type == "cuda")
    side = _side_stream(tensor.device, place)
    side.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(side):
        there = tensor.to(place, non_blocking=True)
    tensor.record_stream(side)  # its memory is not used anew before that
    return there


@cache
def _side_stream(device: torch.device, target: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
