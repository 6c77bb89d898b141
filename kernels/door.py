"""The one door to the kernels: chooses a kernel or its reference, and logs why.

A Triton kernel is taken for tensors on a GPU, where Triton is installed and the kernel takes what
it is given; else the reference. `LONGCTX_KERNELS=triton` makes a device without Triton, or a kernel
that fails, an error; `LONGCTX_KERNELS=reference` turns all of them off. Each choice is logged once,
with its reason, at level INFO. Knows nothing of methods.
"""

import importlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from longctx.kernels import fused_attention as fused
from longctx.kernels.attention_mass_ref import attention_mass as attention_mass_ref
from longctx.kernels.similarity_max_ref import similarity_max as similarity_max_ref
from longctx.kernels.similarity_max_ref import sliding_max as sliding_max_ref

VARIABLE, CHOICES = "LONGCTX_KERNELS", ("triton", "reference")

_log = logging.getLogger(__name__)
_broken: dict[tuple, str] = {}  # what failed when it was first tried in this process, and why


class CannotChoose(ValueError):
    """LONGCTX_KERNELS asks for what there is not; `args` are what, why and what to do."""


def require(device: str | torch.device) -> None:
    """Checks the environment before any work.

    Raises:
        CannotChoose: an unknown value, or Triton's kernels cannot run on this device as it asks.
    """
    wanted, missing = _wanted(), _missing(torch.device(device))
    if wanted == "triton" and missing:
        raise CannotChoose(
            f"cannot use the Triton kernels on {device}",
            missing,
            f"Unset {VARIABLE}, or choose another device.",
        )


def attention_mass(
    q: Tensor, k: Tensor, scale: float, lse: Tensor | None = None, **more: Any
) -> Tensor:
    """Attention that each key receives, summed over the last queries and a group's heads.

    Args:
        q: rotated queries (H, W, D) at the last W of S consecutive positions.
        k: rotated keys (G, S, D); query head h reads key head h // (H/G).
        scale: factor on q·k.
        lse: log-sum-exps (H, W) of these queries, where their attention has given them; they
            spare the kernel a pass, and the reference does without.
        **more: what else the reference takes; the kernel takes none of it.

    Returns:
        (G, S), float32 (float64 for float64 inputs); each row sums to W * H / G.
    """
    more = {name: value for name, value in more.items() if value is not None}
    return _either(
        "attention_mass",
        q.device,
        lambda module: module.refusal(q, k, **more),
        lambda module: module.attention_mass(q, k, scale, lse),
        lambda: attention_mass_ref(q, k, scale, **more),
    )


def similarity_max(vectors: Tensor, scales: Tensor, query: Tensor, query_scales: Tensor) -> Tensor:
    """Maximum over question tokens of the mean over heads of their cosine with each token.

    Args:
        vectors, scales: int8 (n, heads, D) and float16 (n, heads), the tokens.
        query, query_scales: int8 (T, heads, D) and float16 (T, heads), the question's tokens.

    Returns:
        (n,) float32. Equal inputs give equal bits, whatever n is cut into.
    """
    given = (vectors, scales, query, query_scales)
    return _either(
        "similarity_max",
        vectors.device,
        lambda module: module.refusal(*given),
        lambda module: module.similarity_max(*given),
        lambda: similarity_max_ref(*given),
    )


def sliding_max(raw: Tensor, reach: int) -> Tensor:
    """Maximum over -reach..+reach around each of n entries, clipped at the ends."""
    return _either(
        "similarity_max",
        raw.device,
        lambda module: None,
        lambda module: module.sliding_max(raw, reach),
        lambda: sliding_max_ref(raw, reach),
    )


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> fused.Attended | None:
    """Attention by the fastest fused operator that takes these tensors.

    Args:
        q: queries (H, T, D).
        k, v: keys and values (G, S, D); query head h reads head h // (H/G).
        scale: factor on q·k.
        causal: query i sees keys up to i; T must equal S. Else each sees all keys.

    Returns:
        Output (H, T, D) and log-sum-exps (H, T); None where no operator takes them.
    """
    if _wanted() == "reference":
        _tell("attention", "a masked call", f"{VARIABLE}=reference")
        return None
    why = f"the first that takes {q.dtype} on {q.device.type}"
    for operator in fused.operators(q, k):
        name = f"{operator.__name__} attention"
        key = (name, q.device, q.dtype, q.shape[-1], causal)
        attended = _attempt(key, lambda chosen=operator: chosen(q, k, v, scale, causal))
        if attended is not None:
            _tell("attention", name, why)
            return attended
        why = f"{name} failed: {_broken[key]}"
    _tell("attention", "a masked call", why)
    return None


def _either(
    op: str,
    device: torch.device,
    refusal: Callable[[Any], str | None],
    kernel: Callable[[Any], Tensor],
    reference: Callable[[], Tensor],
) -> Tensor:
    """The kernel's result, or the reference's where the kernel cannot be used."""
    why, wanted = _reason(device), _wanted()
    if why is None:
        module = importlib.import_module(f"longctx.kernels.{op}")
        why = refusal(module)
    if why is None:
        # Where Triton was asked for, a kernel that fails is an error.
        call, key = lambda: kernel(module), (op, device)
        with _on(device):
            result = call() if wanted == "triton" else _attempt(key, call)
        if result is not None:
            _tell(op, "the Triton kernel", f"{VARIABLE}=triton" if wanted else f"on {device.type}")
            return result
        why = f"the kernel failed: {_broken[key]}"
    _tell(op, "the reference", why)
    return reference()


def _reason(device: torch.device) -> str | None:
    """Why kernels are not to be used on a device; None: they are."""
    wanted = _wanted()
    if wanted == "triton":
        require(device)
        return None
    if wanted == "reference":
        return f"{VARIABLE}=reference"
    return f"the tensors are on {device.type}" if device.type == "cpu" else _missing(device)


def _wanted() -> str | None:
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
    capability = torch.cuda.get_device_capability(device)
    return f"compute capability {capability} is under 8.0" if capability < (8, 0) else None


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _on(device: torch.device) -> AbstractContextManager:
    """Triton launches on the current device, not on that of the tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _attempt(key: tuple, call: Callable[[], Any]) -> Any:
    """The call's result; None where it fails or has failed, which is remembered for `key`.

    Running out of memory is the caller's to know of, and says nothing of the kernel.
    """
    if key in _broken:
        return None
    try:
        return call()
    except Exception as error:  # compilers and drivers fail in every way there is
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate" in str(error):
            raise
        _broken[key] = f"{type(error).__name__}: {error}".splitlines()[0]
        _log.info("%s does not run here: %s", key[0], _broken[key])
        return None


@cache
def _tell(op: str, choice: str, why: str) -> None:
    """Logs a choice; `cache` does it once."""
    _log.info("%s: %s (%s)", op, choice, why)
