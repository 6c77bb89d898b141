"""Needles whose values are to be copied, in haystacks within the model's window.

They are those of `niah`, in the prose of the package; here each value's tokens are found. Knows
nothing of models but their tokenizer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from longctx.core.common.errors import UsageError
from longctx.core.measure.calibrate.tasks import prose, tokens_of
from longctx.core.measure.haystack import Builder
from longctx.core.measure.niah.drawing import Prose
from longctx.core.measure.niah.kinds import MAKERS
from longctx.core.measure.niah.laying import Laid, Needles, lay
from longctx.core.measure.niah.variants import Variant
from longctx.core.tokens.tokens import TokenStream

KINDS = ("number", "name", "phrase", "date", "passkey", "uuid")
NEEDLES = 5  # in one haystack, at evenly spaced depths


@dataclass(frozen=True)
class Needle:
    """A question whose answer is to be copied.

    Attributes:
        question, value: words.
        first, end: the value's tokens of the document, [first, end).
    """

    question: str
    value: str
    first: int
    end: int


@dataclass(frozen=True)
class Haystack:
    """A document (N,) of token ids, and its needles."""

    ids: Tensor
    needles: tuple[Needle, ...]


class Haystacks:
    """Makes haystacks for one tokenizer.

    Args:
        tokenizer: a fast transformers tokenizer.
        length: tokens of every document.
        seed: decides all of them.

    Raises:
        UsageError: the length is too short for the needles.
    """

    def __init__(self, tokenizer: Any, length: int, seed: int):
        lines = prose()
        self._builder, self._prose = Builder(tokenizer, lines), Prose(lines)
        self._stream, self._length = TokenStream(tokenizer), length
        self._needles = Needles(Variant("copying", KINDS), MAKERS, NEEDLES, seed=seed)
        (plan,) = self._needles.plans(self._prose, length, 0)
        try:
            self._builder.require_length(length, plan.groups)
        except UsageError as error:
            what = f"cannot look for retrieval heads in a window with room for {length:,} tokens"
            remedy = "Give a larger --length, or use a model with a longer window."
            raise UsageError(what, error.why, remedy) from error

    def make(self, number: int) -> Haystack:
        """A haystack; the same numbers give the same ones.

        Raises:
            LongctxError: the tokenizer gives no exact length.
        """
        (plan,) = self._needles.plans(self._prose, self._length, number)
        laid = lay(self._builder, plan)
        ids, starts = tokens_of(self._stream, laid.case.text)
        return Haystack(ids, tuple(_needles(laid, starts)))


def _needles(laid: Laid, starts: np.ndarray) -> Iterator[Needle]:
    text = laid.case.text.encode()
    for query in laid.case.queries:
        (value,), line = query.answers, query.spans[0]
        begin = text.index(value.encode(), line.start, line.end)
        # The first token may hold the space before the value too.
        first = int(np.searchsorted(starts, begin, side="right")) - 1
        end = int(np.searchsorted(starts, begin + len(value.encode())))
        yield Needle(query.question, value, first, end)
