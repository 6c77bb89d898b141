"""Weights made of others: every tensor rounded once to a number format, an adapter merged before.

An adapter is a safetensors file. `NAME.lora_A` (r, in) and `NAME.lora_B` (out, r) add B A to the
matrix NAME.weight, which is (out, in); `NAME.weight` takes the place of that tensor. Merging is
done in float32, and rounding comes last, so that a weight that fits the format is exact in it.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.foreign import foreign
from longctx.core.model.weights import tensors_of

A, B, WHOLE = ".lora_A", ".lora_B", ".weight"
HEADER = 1 << 20  # bytes kept free for a header: it is written last, and padded with spaces
FORMATS = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def write(
    tensors: Iterable[tuple[str, Tensor]], adapter: Path | None, dtype: torch.dtype, path: Path
) -> None:
    """Writes a model's weights as one safetensors file; one tensor at a time is in memory.

    Args:
        tensors: names and values.
        adapter: what is merged into them; None: nothing.
        dtype: the number format to round to.
        path: the new file.

    Raises:
        UsageError: the adapter cannot be read, or does not fit.
        OSError: the file cannot be written.
    """
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    start = 0
    with path.open("xb") as file:
        file.seek(8 + HEADER)
        for name, value in merged(tensors, adapter):
            data = value.to(dtype).contiguous().reshape(-1).view(torch.uint8).numpy().data
            end = start + file.write(data)
            stored = {"dtype": FORMATS[dtype], "shape": list(value.shape)}
            header[name] = {**stored, "data_offsets": [start, end]}
            start = end
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > HEADER:
            raise LongctxError(f"cannot write {str(path)!r}", "it has too many tensors")
        file.seek(0)
        file.write(HEADER.to_bytes(8, "little") + text.ljust(HEADER))


def merged(
    tensors: Iterable[tuple[str, Tensor]], adapter: Path | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors in float32, with an adapter merged into them; see `write`."""
    changes = _read(adapter) if adapter is not None else {}
    used: set[str] = set()
    for name, value in tensors:
        value = value.float()
        part = name.removesuffix(WHOLE)
        pair = [key for key in (part + A, part + B) if name.endswith(WHOLE) and key in changes]
        own = [*pair, *([name] if name in changes else [])]
        if own:
            used.update(own)
            value = _changed(adapter, name, value, {key: changes[key].float() for key in own})
        yield name, value
    if unused := sorted(changes.keys() - used):
        raise _misfit(adapter, f"{unused[0]} belongs to no tensor of the model")


def _changed(adapter: Path | None, name: str, value: Tensor, own: dict[str, Tensor]) -> Tensor:
    """A tensor with what an adapter has for it, by the endings of its names."""
    part = name.removesuffix(WHOLE)
    if name in own:
        if len(own) > 1:
            raise _misfit(adapter, f"it has both {name} in full and changes to it")
        if own[name].shape != value.shape:
            raise _misfit(adapter, f"{name} is {_sizes(own[name])}, not {_sizes(value)}")
        return own[name]
    if len(own) == 1:
        raise _misfit(adapter, f"it has only one of {part + A} and {part + B}")
    a, b = own[part + A], own[part + B]
    fits = a.ndim == b.ndim == value.ndim == 2 and a.shape[0] == b.shape[1]
    if not fits or (b.shape[0], a.shape[1]) != tuple(value.shape):
        why = f"{part + B} ({_sizes(b)}) times {part + A} ({_sizes(a)}) is not {_sizes(value)}"
        raise _misfit(adapter, why)
    return value + b @ a


def _read(adapter: Path) -> dict[str, Tensor]:
    tensors_of(adapter)  # refuses what is no safetensors file, or is not whole
    told = foreign(f"cannot read the adapter {str(adapter)!r}", "Install longctx again.")
    with told, safe_open(adapter, framework="pt") as file:
        changes = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if wrong := sorted(name for name in changes if not name.endswith((A, B, WHOLE))):
        raise _misfit(adapter, f"{wrong[0]!a} is no {A}, {B} or {WHOLE}")
    return changes


def _sizes(tensor: Tensor) -> str:
    return " x ".join(f"{size:,}" for size in tensor.shape)


def _misfit(adapter: Path | None, why: str) -> UsageError:
    return UsageError(
        f"the adapter {str(adapter)!r} does not fit its model", why, "Install longctx again."
    )
