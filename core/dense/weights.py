"""The sentence encoder's files: its sizes, its weights in 8 bits, its tokenizer.

all-MiniLM-L6-v2, in `profiles/minilm/`. Does not import torch.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from longctx.core.common.errors import LongctxError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FINGERPRINT = "all-MiniLM-L6-v2-int8-2b354c0a"  # the start of its files' SHA-256
FOLDER = Path(str(resources.files("longctx.profiles") / "minilm"))
WIDTH = 384  # numbers of a vector
_SCALE = ".scale"


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder.

    Attributes:
        layers, heads, width, inner: of the network; `inner` of its feed-forward part.
        positions: the most tokens that it can read at once.
        epsilon: of the layer norms.
        longest: tokens of a text that are read, with the two that mark its ends.
    """

    layers: int
    heads: int
    width: int
    inner: int
    positions: int
    epsilon: float
    longest: int


@cache
def config() -> EncoderConfig:
    """The sizes of the shipped encoder.

    Raises:
        LongctxError: its file is missing or damaged.
    """
    try:
        return EncoderConfig(**json.loads((FOLDER / "config.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise _unusable("config.json", error) from error


@cache
def stored() -> dict[str, np.ndarray]:
    """The weights as they are stored: int8 matrices, float32 scales of their rows and vectors.

    Raises:
        LongctxError: their file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(FOLDER / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise _unusable("model.safetensors", error) from error


def rows(name: str, which: np.ndarray | slice) -> np.ndarray:
    """Rows of a matrix (R, C) in float32."""
    return stored()[name][which] * stored()[f"{name}{_SCALE}"][which, None]


@cache
def whole(name: str) -> np.ndarray:
    """A matrix (R, C) or a vector (C,) in float32."""
    return rows(name, slice(None)) if f"{name}{_SCALE}" in stored() else stored()[name]


def names() -> list[str]:
    """The names of the matrices and vectors, as in the published checkpoint."""
    return [name for name in stored() if not name.endswith(_SCALE)]


@cache
def tokenizer() -> "Tokenizer":
    """Splits texts into word pieces.

    Raises:
        LongctxError: its file is missing or damaged.
    """
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    except Exception as error:  # the library raises nothing narrower
        raise _unusable("tokenizer.json", error) from error
    loaded.enable_truncation(config().longest)
    return loaded


def _unusable(name: str, error: Exception) -> LongctxError:
    return LongctxError(
        f"cannot load {FOLDER / name}, a part of the sentence encoder",
        str(error),
        "Install longctx again, or ask with --gather-by bm25, which does not need it.",
    )
