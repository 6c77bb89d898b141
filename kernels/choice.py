"""The choice between a kernel and its definition, made for every call and logged with its reason.

`@operation` stands at a definition and registers it; a call of the operation then takes the Triton
kernel for tensors on a GPU, where Triton is installed and the kernel takes what it is given, else
the definition. `LONGCTX_KERNELS` may force either. A kernel that fails when it is first used is not
tried again in this process. Names no operation.
"""

import importlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, update_wrapper
from importlib.util import find_spec
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

VARIABLE, CHOICES = "LONGCTX_KERNELS", ("triton", "reference")

Given = ParamSpec("Given")
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


class Operation(Generic[Given, Result]):
    """What a kernel computes: a call gives the kernel's result, or the definition's.

    The kernel of a definition in `<op>_ref.py` is the function of the same name and arguments in
    `<op>.py`, which is imported when it is first wanted. `refusal` in that module says why it does
    not take given arguments, None if it does; for a further function it is `<function>_refusal`,
    and one without takes everything. The first argument that is a tensor says which device.

    Attributes:
        definition: the function that the decorator stands at.
        kernel: name of the kernel's module, under which choices are logged.
    """

    def __init__(self, definition: Callable[Given, Result]):
        update_wrapper(self, definition)
        self.definition = definition
        self._name, self._module = definition.__name__, definition.__module__.removesuffix("_ref")
        self.kernel = self._module.rpartition(".")[2]
        self._refusal = "refusal" if self._name == self.kernel else f"{self._name}_refusal"
        self._where = next(
            (place, name)
            for place, (name, parameter) in enumerate(signature(definition).parameters.items())
            if parameter.annotation is Tensor
        )

    def __call__(self, *given: Given.args, **more: Given.kwargs) -> Result:
        """As the definition says, by the kernel where it can be used."""
        place, name = self._where
        tensor: Any = given[place] if place < len(given) else more[name]
        device, wanted = tensor.device, asked_for()
        why = _reason(device, wanted)
        if why is None:
            # Another Triton may lack what a kernel takes from it.
            module = attempt((self.kernel, "import"), self._imported)
            why = self._refused(module, *given, **more)
            if why is None:
                # Where Triton was asked for, a kernel that fails is an error.
                compute, key = getattr(module, self._name), (self.kernel, device)
                with _on(device):
                    if wanted == "triton":
                        result = compute(*given, **more)
                    else:
                        result = attempt(key, lambda: compute(*given, **more))
                if result is not None:
                    reason = f"{VARIABLE}=triton" if wanted else f"on {device.type}"
                    tell(self.kernel, "the Triton kernel", reason)
                    return result
                why = f"the kernel failed: {broken[key]}"
        tell(self.kernel, "the reference", why)
        return self.definition(*given, **more)

    def _imported(self) -> Any:
        return importlib.import_module(self._module)

    def _refused(self, module: Any, *given: Any, **more: Any) -> str | None:
        """Why the kernel is not to compute this; None: it is."""
        if module is None:
            return f"the kernel failed: {broken[self.kernel, 'import']}"
        refusal = getattr(module, self._refusal, None)
        return refusal(*given, **more) if refusal else None


operations: dict[str, Operation[..., Any]] = {}  # by name, as their definitions were imported


def operation(definition: Callable[Given, Result]) -> Operation[Given, Result]:
    """Registers a definition and puts the choice in front of it."""
    made = Operation(definition)
    operations[definition.__name__] = made
    return made


def _reason(device: torch.device, wanted: str | None) -> str | None:
    """Why kernels are not to be used on a device, with what was asked for; None: they are."""
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
