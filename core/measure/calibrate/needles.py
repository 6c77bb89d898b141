"""Needles whose values are to be copied, in haystacks within the model's window.

They are those of `niah`, in the prose of the package. Knows nothing of models but their tokenizer.
"""

from longctx.core.common.errors import UsageError
from longctx.core.measure.case import Query
from longctx.core.measure.haystack import Builder
from longctx.core.measure.niah.kinds import MAKERS
from longctx.core.measure.niah.laying import Laid, Needles, lay
from longctx.core.measure.niah.variants import Variant

KINDS = ("number", "name", "phrase", "date", "passkey", "uuid")
NEEDLES = 5  # in one haystack, at evenly spaced depths


class Haystacks:
    """Makes haystacks for one tokenizer.

    Args:
        builder: of the tokenizer and the prose.
        length: tokens of every document.
        seed: decides all of them.

    Raises:
        UsageError: the length is too short for the needles.
    """

    def __init__(self, builder: Builder, length: int, seed: int):
        self._builder, self._length = builder, length
        self._needles = Needles(Variant("copying", KINDS), MAKERS, NEEDLES, seed=seed)
        try:
            self._needles.plans(builder, length, 0)
        except UsageError as error:
            what = f"cannot look for retrieval heads in a window with room for {length:,} tokens"
            remedy = "Give a larger --length, or use a model with a longer window."
            raise UsageError(what, error.why, remedy) from error

    def make(self, number: int) -> Laid:
        """A haystack; the same number gives the same one.

        Raises:
            LongctxError: the tokenizer gives no exact length.
        """
        (plan,) = self._needles.plans(self._builder, self._length, number)
        return lay(self._builder, plan)


def value_tokens(laid: Laid, query: Query) -> range:
    """The tokens of a needle's value; the first may hold the space before it too."""
    value, line = query.answers[0].encode(), query.spans[0]
    begin = laid.case.text.encode().index(value, line.start, line.end)
    return range(*laid.haystack.tokens(begin, begin + len(value)))
