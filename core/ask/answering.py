"""What each way to an answer is given and gives: a question, and an answer ready to be decoded.

The ways are `one_document.py`, `joint.py` and `by_words.py`, which share `gathering.py`, and
`recalling.py`; `ways.py` chooses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from longctx.core.ask.composing import Composed
from longctx.core.contracts.memory import Scores
from longctx.core.contracts.policy import Policy
from longctx.core.decode import policies
from longctx.core.decode.policies import Decoding
from longctx.core.retrieve.best_passages import Chosen
from longctx.core.retrieve.lexical import PassageIndex
from longctx.core.store.document import Document


@dataclass(frozen=True)
class Question:
    """What was asked.

    Attributes:
        ids: (T,) token ids, the template's included.
        scored: (T,) bool, the tokens of the user's own words.
        answer: the most tokens the answer may have; 0: no answer is needed.
        gather: tokens to gather; None: the profile's number, or the method's.
        decoding: how its answer is decoded.
        words: what is searched for: the user's own words, behind those of earlier questions that
            they refer to.
        passages: the most passages to gather; None: as many as fit.
        own: of `words`, those of the question itself, by which lines are shown; empty: all.
        anyway: answer also where the text seems not to.
    """

    ids: Tensor
    scored: Tensor
    answer: int = 0
    gather: int | None = None
    decoding: Decoding = policies.USUAL
    words: str = ""
    passages: int | None = None
    own: str = ""
    anyway: bool = True

    @property
    def reserved(self) -> int:
        """Positions of the model's window that the answer needs."""
        return self.decoding.options.reserve(self.answer) if self.answer else 0


@dataclass(frozen=True)
class Begun:
    """An answer ready to be decoded.

    Attributes:
        policy: what its tokens attend to.
        hidden: the last hidden state (1, E).
        prompt: (n,) token ids that the model has seen in full.
        dropped: requested tokens that did not fit.
        found: gives the tokens that the answer is based on; called once the answer is complete.
        question: tokens of the question in the template of the model that answers.
        read: the document's part of the prompt; None: the answer attends to what was kept.
    """

    policy: Policy
    hidden: Tensor
    prompt: Tensor
    dropped: int
    found: Callable[[], Chosen]
    question: int
    read: Composed | None = None


class Answering(Protocol):
    """A way to answer.

    Attributes:
        name: the method that answers.
        gathers_by: the gather source, as `--gather-by` names it.
        index: the passages, and their words.
        documents: those asked. Scores and chosen tokens are numbered through all of them.
    """

    name: str
    gathers_by: str
    index: PassageIndex
    documents: tuple[Document, ...]

    @property
    def without(self) -> Sequence[str]:
        """Names of documents that lack embeddings which would have been used."""
        ...

    def begin(self, question: Question, on_gathered: Callable[[], None]) -> Begun:
        """Reads the question; calls `on_gathered` once the tokens it needs are known."""
        ...

    def find(self, question: Question, budgets: Sequence[int | None]) -> list[Chosen]:
        """What is chosen at each budget (None: the usual); nothing is decoded."""
        ...

    def score(self, question: Question) -> Scores:
        """Scores of all tokens, on the CPU."""
        ...
