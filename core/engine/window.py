"""How many document tokens fit the model's window beside question and answer."""

from dataclasses import dataclass

from longctx.core.common.errors import LongctxError, UsageError


@dataclass(frozen=True)
class Room:
    """How many document tokens may be gathered.

    Attributes:
        tokens: gathered, at most.
        dropped: requested by the method or the user, but not fitting in the window.
    """

    tokens: int
    dropped: int


def room(
    window: int,
    prefix: int,
    question: int,
    answer: int,
    total: int,
    wanted: int | None,
    less: str = "",
) -> Room:
    """Fits the gathered tokens into the model's window; the question is never cut.

    Args:
        window: tokens that the model was trained on.
        prefix, question, answer: tokens of the prefix and of the question in its template, and
            positions reserved for the answer.
        total: tokens of the document.
        wanted: prefix and document tokens to recompute; None: all of them, or fail.
        less: how the answer can need fewer positions; empty: it cannot.

    Raises:
        UsageError: the question and its answer leave no room.
        LongctxError: all tokens are needed and do not fit.
    """
    free = window - prefix - question - answer
    if free < 1:
        raise UsageError(
            f"a question of {question} tokens leaves no room for the document",
            f"the model's window is {window} tokens, of which {answer} are kept for the answer",
            f"Ask a shorter question{', ' * bool(less)}{less}.",
        )
    if wanted is None and total > free:
        raise LongctxError(
            f"the document's {total} tokens do not fit",
            f"full attention needs all of them, and the window has room for {free}",
            f"{less[0].upper()}{less[1:]}."
            if less and total < free + answer  # it fits with an answer of one token
            else "Ingest it with --method reform.",
        )
    fitting = total if wanted is None else min(total, max(1, wanted - prefix))
    return Room(min(fitting, free), max(0, fitting - free))
