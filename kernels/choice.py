"""The choice between a kernel and its reference, made for every call, and logged with its reason.

`LONGCTX_KERNELS` may force it. What fails when it is first used is not tried again in this process.
Knows no operation.
"""

import importlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch

VARIABLE, CHOICES = "LONGCTX_KERNELS", ("triton", "reference")

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
broken: dict[tuple, str] = {}  # what failed when it was first tried in this process, and why


class CannotChoose(ValueError):
    """LONGCTX_KERNELS asks for what there is not; `args` are what, why and what to do."""


def require(device: str | torch.device) -> None:
    """Checks the environment before any work.

    Raises:
        CannotChoose: an unknown value, or Triton's kernels cannot run on this device as it asks.
    """
    wanted, missing = asked_for(), _missing(torch.device(device))
    if wanted == "triton" and missing:
        raise CannotChoose(
            f"cannot use the Triton kernels on {device}",
            missing,
            f"Unset {VARIABLE}, or choose another device.",
        )


def either(
    op: str,
    device: torch.device,
    refusal: Callable[[Any], str | None],
    kernel: Callable[[Any], Result],
    reference: Callable[[], Result],
) -> Result:
    """The kernel's result, or the reference's where the kernel cannot be used."""
    why, wanted = _reason(device), asked_for()
    if why is None:
        name = f"longctx.kernels.{op}"
        # Another Triton may lack what a kernel takes from it.
        module = attempt((op, "import"), lambda: importlib.import_module(name))
        why = refusal(module) if module else f"the kernel failed: {broken[op, 'import']}"
    if why is None:
        # Where Triton was asked for, a kernel that fails is an error.
        call, key = lambda: kernel(module), (op, device)
        with _on(device):
            result = call() if wanted == "triton" else attempt(key, call)
        if result is not None:
            tell(op, "the Triton kernel", f"{VARIABLE}=triton" if wanted else f"on {device.type}")
            return result
        why = f"the kernel failed: {broken[key]}"
    tell(op, "the reference", why)
    return reference()


def _reason(device: torch.device) -> str | None:
    """Why kernels are not to be used on a device; None: they are."""
    wanted = asked_for()
    if wanted == "triton":
        require(device)
        return None
    if wanted == "reference":
        return f"{VARIABLE}=reference"
    return f"the tensors are on {device.type}" if device.type == "cpu" else _missing(device)


def asked_for() -> str | None:
    """What LONGCTX_KERNELS says; None where it says nothing."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", *CHOICES):
        known = " or ".join(CHOICES)
        raise CannotChoose(f"unknown {VARIABLE} {value!r}", "", f"Use {known}, or unset it.")
    return value or None


def _missing(device: torch.device) -> str | None:
    """What keeps Triton from running on a device; None: nothing known."""
    if not _has_triton():
        return "Triton is not installed"
    if device.type == "cpu":
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        return None if interpreted else "Triton needs a GPU"
    if device.type != "cuda":
        return f"Triton does not run on {device.type}"
    capability = _capability(device)
    return f"compute capability {capability} is under 8.0" if capability < (8, 0) else None


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _on(device: torch.device) -> AbstractContextManager:
    """Triton launches on the current device, not on that of the tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def attempt(key: tuple, call: Callable[[], Any]) -> Any:
    """The call's result; None where it fails or has failed, which is remembered for `key`.

    Running out of memory is the caller's to know of, and says nothing of the kernel.
    """
    if key in broken:
        return None
    try:
        return call()
    except Exception as error:  # compilers and drivers fail in every way there is
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate" in str(error):
            raise
        broken[key] = f"{type(error).__name__}: {error}".splitlines()[0]
        _log.info("%s does not run here: %s", key[0], broken[key])
        return None


@cache
def tell(op: str, choice: str, why: str) -> None:
    """Logs a choice; `cache` does it once."""
    _log.info("%s: %s (%s)", op, choice, why)
