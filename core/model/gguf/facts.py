"""What a GGUF file's metadata says of its model, each value checked as it is asked for."""

import math
from typing import Any

import numpy as np

from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import REMEDY
from longctx.core.model.gguf.container import Container

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
        self.architecture = self._text("general.architecture") or ""
        if not self.architecture:
            raise self.wrong("it does not say its architecture (general.architecture)")

    def wrong(self, why: str, remedy: str = REMEDY) -> UsageError:
        """The error that the file cannot be used."""
        return UsageError(f"cannot use {str(self.container.path)!r}", why, remedy)

    def has(self, tensor: str) -> bool:
        """Whether the file has a tensor of this name."""
        return tensor in self.container.tensors

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

    def word(self, key: str) -> str | None:
        """A text under the architecture's prefix, or None."""
        return self._text(self.key(key))

    def flags(self, key: str, length: int) -> list[bool] | None:
        """A list of True and False of this length; None if it is not stated, or no list."""
        value = self.container.metadata.get(self.key(key))
        if not isinstance(value, np.ndarray):
            return None
        if len(value) != length:
            raise self._not(key, value)
        return [bool(one) for one in value]

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
        if isinstance(value, np.ndarray) and len(value):
            if (value != value[0]).any():
                why = f"its layers differ in {self.key(key)}, which this version does not run"
                raise self.wrong(why, "Name another model.")
            return value[0].item()
        return value

    def _text(self, key: str) -> str | None:
        value = self.container.metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"its metadata says that {key} is {str(value)[:80]!a}")
        return value

    def _not(self, key: str, value: Any) -> UsageError:
        return self.wrong(f"its metadata says that {self.key(key)} is {str(value)[:80]!a}")
