"""What a GGUF file's metadata says of its model, each value checked as it is asked for."""

import math
from typing import Any

import numpy as np
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import REMEDY, foreign
from longctx.core.common.regular_files import open_regular
from longctx.core.model.gguf.container import Container, Stored
from longctx.core.model.gguf.types import decoded

# Stated by some files, and without meaning for what a model computes.
HARMLESS = ("vocab_size", "tensor_data_layout", "pooling_type", "rope.scaling.finetuned")
LARGEST_TABLE = 1 << 20  # bytes
LARGEST = (1 << 31) - 1  # of a model's numbers


class Facts:
    """The metadata of a model, by keys without the architecture's prefix.

    Args:
        container: the file.

    Attributes:
        container: the file.
        architecture: llama.cpp's name of the architecture.

    All methods raise UsageError if a value is not what it must be.
    """

    def __init__(self, container: Container):
        self.container = container
        self._asked: set[str] = set()
        self.architecture = self._text("general.architecture") or ""
        if not self.architecture:
            raise self.wrong("it does not say its architecture (general.architecture)")

    def wrong(self, why: str, remedy: str = REMEDY) -> UsageError:
        """The error that the file cannot be used."""
        return UsageError(f"cannot use {str(self.container.path)!r}", why, remedy)

    def has(self, tensor: str) -> bool:
        """Whether the file has a tensor of this name."""
        return tensor in self.container.tensors

    def table(self, tensor: str) -> Tensor:
        """The values of a small tensor, such as factors of frequencies, as float32."""
        stored = self.container.tensors.get(tensor)
        if stored is None:
            raise self.wrong(f"it has no tensor {tensor}")
        if stored.size > LARGEST_TABLE:
            raise self.wrong(f"its tensor {tensor} has {stored.size:,} bytes")
        with foreign(f"cannot read {tensor} of {str(stored.file)!r}"):
            return read_tensor(stored).float()

    def text(self, key: str) -> str | None:
        """A text, or None; the key is whole, such as `general.name`."""
        return self._text(key)

    def find(self, key: str, least: int = 1) -> int | None:
        """A whole number from `least`; None if it is not stated."""
        value = self._only(key)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= LARGEST:
            raise self._not(key, value)
        return value

    def count(self, key: str) -> int:
        """A whole number above 0 that must be stated."""
        value = self.find(key)
        if value is None:
            raise self.wrong(f"its metadata has no {self.key(key)}")
        return value

    def find_real(self, key: str) -> float | None:
        """A finite number; None if it is not stated."""
        value = self._only(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self._not(key, value)
        return float(value)

    def real(self, key: str) -> float:
        """A finite number that must be stated."""
        value = self.find_real(key)
        if value is None:
            raise self.wrong(f"its metadata has no {self.key(key)}")
        return value

    def flag(self, key: str) -> bool | None:
        """True or False; None if it is not stated."""
        value = self._only(key)
        if value is not None and type(value) is not bool:
            raise self._not(key, value)
        return value

    def require(self, key: str, *allowed: Any) -> None:
        """Refuses a file with another value than what all models here have, if it states one."""
        value = self._only(key)
        if value is not None and value not in allowed:
            raise self._not(key, value)

    def word(self, key: str) -> str | None:
        """A text under the architecture's prefix, or None."""
        return self._text(self.key(key))

    def layers(self, key: str, count: int) -> list[bool] | int | None:
        """Which layers have something: a truth for each, or a period; None if it is not stated."""
        value = self.container.metadata.get(self.key(key))
        if not isinstance(value, np.ndarray):
            return self.find(key)
        self._asked.add(self.key(key))
        if len(value) != count:
            raise self._not(key, value)
        return [bool(one) for one in value]

    def require_known(self) -> None:
        """Refuses a file that states something of its architecture that nobody asked for.

        What this version does not know may change what the model computes.
        """
        prefix = self.key("")
        stated = {key for key in self.container.metadata if key.startswith(prefix)}
        harmless = {self.key(key) for key in HARMLESS}
        if unknown := sorted(stated - self._asked - harmless):
            why = (
                f"this version does not know what {unknown[0][:80]!a} means for {self.architecture}"
            )
            raise self.wrong(why, "Name this model in safetensors form.")

    def token(self, key: str) -> int | None:
        """A token id under `tokenizer.ggml`; None if it or such a token is not stated."""
        value = self.container.metadata.get(f"tokenizer.ggml.{key}")
        tokens = self.container.metadata.get("tokenizer.ggml.tokens")
        if type(value) is not int or not isinstance(tokens, list):
            return None
        return value if 0 <= value < len(tokens) else None

    def key(self, key: str) -> str:
        """A key with the architecture's prefix."""
        return f"{self.architecture}.{key}"

    def _only(self, key: str) -> Any:
        """A value; of a list with one value for each layer, that one, if they are the same."""
        value = self.container.metadata.get(self.key(key))
        self._asked.add(self.key(key))
        if isinstance(value, np.ndarray) and len(value):
            if (value != value[0]).any():
                why = f"its layers differ in {self.key(key)}, which this version does not run"
                raise self.wrong(why, "Name another model.")
            return value[0].item()
        return value

    def _text(self, key: str) -> str | None:
        value = self.container.metadata.get(key)
        self._asked.add(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"its metadata says that {key} is {str(value)[:80]!a}")
        return value

    def _not(self, key: str, value: Any) -> UsageError:
        said = ascii(value)[:80] if isinstance(value, str) else str(value)[:80]
        return self.wrong(f"its metadata says that {self.key(key)} is {said}")


def read_tensor(stored: Stored) -> Tensor:
    """A tensor's values, as the file has them.

    Raises:
        ValueError, OSError: the file changed since its header was read.
    """
    data = bytearray(stored.size)
    with open_regular(stored.file) as stream:
        stream.seek(stored.start)
        if stream.readinto(data) != stored.size:
            raise ValueError("the file became shorter while it was read")
    return decoded(data, stored.type, stored.shape)
