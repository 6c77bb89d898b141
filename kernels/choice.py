"""The choice between a kernel and its definition, made for every call and logged with its reason.

`@operation` decorates a definition and registers it; a call then uses the Triton kernel for tensors
on a GPU if Triton is installed and the kernel accepts the arguments, else the definition.
`LONGCTX_KERNELS` may force either. A kernel that fails is not tried again in this process.
"""

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
broken: dict[tuple, str] = {}  # what failed in this process, and why


class CannotChoose(ValueError):
    """LONGCTX_KERNELS asks for something impossible; `args` are what, why and what to do."""


def require(device: str | torch.device) -> None:
    """Checks the environment before any work.

    Raises:
        CannotChoose: an unknown value, or it asks for Triton, which cannot run on this device.
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
    `<op>.py`, which is imported when first needed. `refusal` in that module returns why the kernel
    does not accept given arguments, None if it does; for a second function it is
    `<function>_refusal`. The first tensor argument decides the device.

    Attributes:
        definition: the decorated function.
        kernel: name of the kernel's module, used in logs.

    Raises:
        TypeError: the definition has no parameter annotated `Tensor`.
    """

    def __init__(self, definition: Callable[Given, Result]):
        update_wrapper(self, definition)
        self.definition = definition
        self._name, self._module = definition.__name__, definition.__module__.removesuffix("_ref")
        self.kernel = self._module.rpartition(".")[2]
        self._refusal = "refusal" if self._name == self.kernel else f"{self._name}_refusal"
        places = enumerate(signature(definition).parameters.items())
        tensors = [(place, name) for place, (name, it) in places if it.annotation is Tensor]
        if not tensors:
            raise TypeError(f"{self._module}_ref.{self._name} has no parameter annotated Tensor")
        self._where = tensors[0]

    def __call__(self, *given: Given.args, **more: Given.kwargs) -> Result:
        """The definition's result, computed by the kernel if possible."""
        place, name = self._where
        tensor: Any = given[place] if place < len(given) else more[name]
        device, wanted = tensor.device, asked_for()
        why = _reason(device, wanted)
        if why is None:
            # Another version of Triton may lack what a kernel imports.
            module = attempt((self.kernel, "import"), self._imported)
            why = self._refused(module, *given, **more)
            if why is None:
                # If Triton was requested, a failing kernel is an error.
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
        """Why the kernel must not compute this; None if it may."""
        if module is None:
            return f"the kernel failed: {broken[self.kernel, 'import']}"
        return getattr(module, self._refusal)(*given, **more)


operations: dict[str, Operation[..., Any]] = {}  # by name, in order of import


def operation(definition: Callable[Given, Result]) -> Operation[Given, Result]:
    """Registers a definition and wraps it in the choice."""
    made = Operation(definition)
    operations[definition.__name__] = made
    return made


def _reason(device: torch.device, wanted: str | None) -> str | None:
    """Why kernels are not used on a device, given what was requested; None: they are."""
    if wanted == "triton":
        require(device)
        return None
    if wanted == "reference":
        return f"{VARIABLE}=reference"
    return f"the tensors are on {device.type}" if device.type == "cpu" else _missing(device)


def asked_for() -> str | None:
    """The value of LONGCTX_KERNELS; None if it is unset."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", *CHOICES):
        known = " or ".join(CHOICES)
        raise CannotChoose(f"unknown {VARIABLE} {value!r}", "", f"Use {known}, or unset it.")
    return value or None


def _missing(device: torch.device) -> str | None:
    """Why Triton cannot run on a device; None: no known reason."""
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
    """The call's result; None if it fails or has failed, which is remembered for `key`.

    Running out of memory is raised to the caller, as it is not the kernel's fault.
    """
    if key in broken:
        return None
    try:
        return call()
    except Exception as error:  # compilers and drivers fail in every possible way
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate" in str(error):
            raise
        broken[key] = f"{type(error).__name__}: {error}".splitlines()[0]
        _log.info("%s does not run here: %s", key[0], broken[key])
        return None


@contextmanager
def recording() -> Iterator[None]:
    """Kernels that fail while an error ends this context are tried again later.

    They may be such as only cannot be recorded in a graph.
    """
    before = set(broken)
    try:
        yield
    except Exception:  # whatever it is, it goes on
        for key in set(broken) - before:
            del broken[key]
        raise


@cache
def tell(op: str, choice: str, why: str) -> None:
    """Logs a choice; `cache` makes it happen once."""
    _log.info("%s: %s (%s)", op, choice, why)
