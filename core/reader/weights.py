"""The reader's files: sizes, weights in 8 bits, tokenizer, and what was fitted to it."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.core.common.errors import LongctxError

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

FOLDER = Path(str(resources.files("longctx.profiles") / "reader"))
SCALE = ".scale"


@dataclass(frozen=True)
class ReaderConfig:
    """What the reader is, and what was fitted on development questions.

    Attributes:
        name: for people and JSON.
        layers, heads, width: of the network.
        longest: tokens of question and passage together.
        question, context: the most tokens of a question, and of what stands above a passage.
        answer: the most tokens of an answer.
        choice: the weights by which answers of several passages are compared: see `choosing.py`.
        likely: weights of a candidate's margin and of its share among all, and a constant: how
            likely it is right, as log odds.
        found, unsure: from which likelihood on the text answers the question, and may do so.
    """

    name: str
    layers: int
    heads: int
    width: int
    longest: int
    question: int
    context: int
    answer: int
    choice: dict[str, float]
    likely: tuple[float, float, float]
    found: float
    unsure: float


@cache
def config() -> ReaderConfig:
    """The shipped reader's.

    Raises:
        LongctxError: its file is missing or damaged.
    """
    try:
        read: dict[str, Any] = json.loads((FOLDER / "config.json").read_text("utf-8"))
        margin, share, constant = map(float, read.pop("likely"))
        return ReaderConfig(likely=(margin, share, constant), **read)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _unusable("config.json", error) from error


def loaded(device: str, dtype: "torch.dtype") -> "dict[str, torch.Tensor]":
    """The weights by their published names, on a device.

    Raises:
        LongctxError: their file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        stored = load_file(FOLDER / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise _unusable("model.safetensors", error) from error
    made = {}
    for name, values in stored.items():
        if name.endswith(SCALE):
            continue
        scale = stored.get(f"{name}{SCALE}")
        own = values.to(device)
        if scale is not None:
            own = own.float() * scale.to(device)[:, None]
        made[name] = own.to(dtype)
    return made


@cache
def tokenizer() -> "Tokenizer":
    """Splits texts into word pieces, of any length.

    Raises:
        LongctxError: its file is missing or damaged.
    """
    from tokenizers import Tokenizer

    try:
        read = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    except Exception as error:  # the library raises nothing narrower
        raise _unusable("tokenizer.json", error) from error
    read.no_truncation()
    read.no_padding()
    return read


def _unusable(name: str, error: Exception) -> LongctxError:
    return LongctxError(
        f"cannot load {FOLDER / name}, a part of the reader",
        str(error),
        "Install longctx again, or ask with --answer-by decode, which does not need it.",
    )
