"""The number formats of GGUF tensors: their sizes, and the values behind their bytes.

Six of them are decoded here, so that a file in these needs no other package; the package `gguf`
decodes the rest. Knows nothing of files and names.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longctx.core.common.distribution import install_command
from longctx.core.common.errors import UsageError


class Type(NamedTuple):
    """A tensor type of GGUF: `block` consecutive values of a row are stored in `size` bytes."""

    name: str
    block: int
    size: int


# By the number that a file states (`enum ggml_type`).
TYPES = {
    0: Type("F32", 1, 4),
    1: Type("F16", 1, 2),
    2: Type("Q4_0", 32, 18),
    3: Type("Q4_1", 32, 20),
    6: Type("Q5_0", 32, 22),
    7: Type("Q5_1", 32, 24),
    8: Type("Q8_0", 32, 34),
    10: Type("Q2_K", 256, 84),
    11: Type("Q3_K", 256, 110),
    12: Type("Q4_K", 256, 144),
    13: Type("Q5_K", 256, 176),
    14: Type("Q6_K", 256, 210),
    16: Type("IQ2_XXS", 256, 66),
    17: Type("IQ2_XS", 256, 74),
    18: Type("IQ3_XXS", 256, 98),
    19: Type("IQ1_S", 256, 50),
    20: Type("IQ4_NL", 32, 18),
    21: Type("IQ3_S", 256, 110),
    22: Type("IQ2_S", 256, 82),
    23: Type("IQ4_XS", 256, 136),
    29: Type("IQ1_M", 256, 56),
    30: Type("BF16", 1, 2),
    34: Type("TQ1_0", 256, 54),
    35: Type("TQ2_0", 256, 66),
    39: Type("MXFP4", 32, 17),
}
PART = 1 << 22  # values decoded at a time: intermediate results stay small beside the tensor


def require_decoder(number: int, what: str) -> None:
    """Refuses a tensor type that needs the package `gguf` where that is not installed.

    Args:
        number: the type's number in TYPES.
        what: what cannot be done, with the file in question.

    Raises:
        UsageError: names the type and the command that installs the package.
    """
    name = TYPES[number].name
    if name not in DECODED and find_spec("gguf") is None:
        raise UsageError(
            what,
            f"some of its tensors are {name}, which needs the package gguf",
            f"Run: {install_command('gguf')}.",
        )


def decoded(data: bytearray, number: int, shape: tuple[int, ...]) -> Tensor:
    """The values of a tensor.

    Args:
        data: its bytes, as in the file; may be kept as the result's memory.
        number: its type's number in TYPES.
        shape: of the result, the last dimension being a row in the file.

    Returns:
        Tensor of this shape: float16 and bfloat16 as they are, all else float32.
    """
    kind = TYPES[number]
    if kind.name in PLAIN:
        return torch.frombuffer(data, dtype=PLAIN[kind.name]).reshape(shape)
    blocks = torch.frombuffer(data, dtype=torch.uint8).reshape(-1, kind.size)
    result = torch.empty(len(blocks), kind.block)
    decode = BLOCKS.get(kind.name) or _by_package(number)
    step = PART // kind.block
    for start in range(0, len(blocks), step):
        result[start : start + step] = decode(blocks[start : start + step])
    return result.reshape(shape)


def _half(blocks: Tensor, start: int) -> Tensor:
    """(n, 1): the float16 at a byte of each block, as float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(blocks: Tensor) -> Tensor:
    """(n, 32): the numbers 0 to 15 in 16 bytes: first all lower halves, then all upper ones."""
    return torch.cat([blocks & 15, blocks >> 4], dim=1).float()


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].view(torch.int8).float()


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _by_package(number: int) -> Callable[[Tensor], Tensor]:
    """A function that decodes blocks (n, size) with the package `gguf`."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType(number)

    def decode(blocks: Tensor) -> Tensor:
        with np.errstate(all="ignore"):  # a damaged scale may be infinite: no warning helps
            return torch.from_numpy(dequantize(blocks.numpy(), kind))

    return decode


PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1}
DECODED = {*PLAIN, *BLOCKS}
