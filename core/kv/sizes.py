"""The sizes of a bounded memory, cut to fit a model's window.

Independent of the method: options that all bounded methods share are here, others with the method.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import MethodOptions
from longctx.core.profile.described import Described


@dataclass(frozen=True)
class Sizes(MethodOptions):
    """Options that all bounded methods share.

    Attributes:
        budget: tokens that each layer's cache keeps after a chunk, and after a token of an answer.
        chunk: tokens of the input read at a time.
        question: least room in tokens for a question after `budget` and a chunk.
    """

    budget: int = 8192
    chunk: int = 8192
    question: int = 512

    def __post_init__(self) -> None:
        for name in ("budget", "chunk", "question"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")

    @classmethod
    def by_rule(cls, model: Described, window: int) -> dict[str, Any]:
        """The usual sizes, cut as `fitted` cuts them."""
        fitted = cls().fitted(window)
        return {name: getattr(fitted, name) for name in ("budget", "chunk", "question")}

    @property
    def longest(self) -> int:
        """Most tokens attended to, a question's included."""
        return self.budget + self.chunk + self.question

    def fitted(self, window: int) -> Self:
        """Options whose longest window is at most what the model was trained on.

        If it is longer, a question gets at most an eighth of the trained window, a chunk at most a
        quarter, and kept tokens the rest; the chunk gets whatever they do not need.

        Raises:
            UsageError: what is left is too small for the method.
        """
        if self.longest <= window:
            return self
        question = min(self.question, window // 8)
        chunk = min(self.chunk, window // 4)
        budget = min(self.budget, window - chunk - question)
        chunk = min(self.chunk, window - budget - question)
        try:
            return replace(self, question=question, chunk=chunk, budget=budget)
        except ValueError as error:
            raise UsageError(
                f"budget + chunk + question = {self.longest:,} cannot be cut to the model's window",
                f"it is {window:,} tokens; {error}",
                "Set smaller ones for the method in a profile (docs/profiles.md).",
            ) from error
