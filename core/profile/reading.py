"""How gathered passages are put before a model, as a profile may set it.

Only the values, each checked when given; `core/ask/composing.py` uses them. Imports no model
library.
"""

from dataclasses import dataclass

from longctx.core.common.errors import UsageError

DOCUMENT, BEST_FIRST, BEST_LAST = ORDERS = ("document", "best-first", "best-last")


@dataclass(frozen=True)
class Reading:
    """How what a gather source chooses is put before the model.

    A document that fits `tokens` as a whole is put before it as it is.

    Attributes:
        tokens: prefix and gathered tokens that the model reads well, separators included; None: the
            method's `gather`.
        passages: the most runs of neighbouring passages; None: as many as fit.
        order: of the passages, one of ORDERS.
        separator: text between two passages.
        quote: answers are stretches of the passages.
        refusal: probability of "not in the text" from which that may be the answer, if the model
            learnt to say so; below it the likeliest other answer is given. 0: always.
        reranked: passages that the model reads one at a time before, to put those first in which it
            finds an answer; 0: none. It must have learnt to say that a text has none.

    Raises:
        UsageError: a value is out of range.
    """

    tokens: int | None = None
    passages: int | None = None
    order: str = DOCUMENT
    separator: str = ""
    quote: bool = False
    refusal: float = 0.0
    reranked: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "passages"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"`{name}` is {value}", "", "Write 1 or more, or leave it out.")
        if self.reranked < 0:
            raise UsageError(
                f"`reranked` is {self.reranked}", "", "Write a number of passages, or 0."
            )
        if not 0 <= self.refusal <= 1:
            raise UsageError(f"`refusal` is {self.refusal}", "", "Write a probability.")
        if self.order not in ORDERS:
            raise UsageError(f"`order` is {self.order!r}", "", f"Write one of {', '.join(ORDERS)}.")
