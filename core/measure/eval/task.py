"""A task: it makes cases of a length, and says how right an answer is. Values alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from longctx.core.measure.eval.case import Case


@dataclass(frozen=True)
class Task:
    """One kind of work, at any length.

    Attributes:
        name: as people know it.
        make: from a fast transformers tokenizer, the tokens of a document, how many samples, and a
            seed: the cases, one after another, always the same ones.
        score: from what is right and an answer: 0 to 1.
        max_new_tokens: that an answer needs.
        together: all samples are questions to one document; else each has its own.
    """

    name: str
    make: Callable[[Any, int, int, int], Iterator[Case]]
    score: Callable[[tuple[str, ...], str], float]
    max_new_tokens: int
    together: bool = False

    def cases(self, samples: int) -> int:
        """How many documents so many samples are."""
        return 1 if self.together else samples
