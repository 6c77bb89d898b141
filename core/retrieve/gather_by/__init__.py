"""The gather sources, one file each; the folder is the registry.

`--gather-by bm25` loads `bm25.py`, which defines a class `GatherSource` that inherits the one
below. `method` has no file: it is the rule of the document's method, as in its paper. Importing
this loads no model libraries.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from longctx.core.common.contract import Contract
from longctx.core.common.errors import UsageError
from longctx.core.common.registry import Registry

if TYPE_CHECKING:
    import numpy as np

    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.retrieve.ranked import Ranked

METHOD = "method"  # the rule of the document's own method
USUAL = "hybrid"  # finds most: docs/benchmarks/accuracy.md, "Gather recall"
WORDS = "bm25"  # needs no embeddings
READER = "reader"  # the usual one's best passages, in the reader's order
_registry = Registry(__name__, "gather source")


class Maxima(Protocol):
    """The best cosine of each question token in each passage; see `late_interaction.py`."""

    def scores(self, ranges: "np.ndarray") -> "np.ndarray":
        """Standardised MaxSim of ranges (R, 2) of passages, (R,) float64."""
        ...


class Answers(Protocol):
    """How well passages answer the question; see `core/retrieve/stretches.py`."""

    @property
    def most(self) -> int:
        """Passages to ask about."""
        ...

    def scores(self, best: "np.ndarray", search: "np.ndarray") -> "np.ndarray":
        """Of passages (P,), best first, with a search's scores (P,): (P,) float64."""
        ...


@dataclass(frozen=True)
class Sought:
    """The query, and what is known of the documents.

    Attributes:
        words: the user's words.
        index: the passages of the documents, and their words.
        cosines: gives the cosine of the question's vector with each passage's, (P,) float64, or
            None where a document has no vectors.
        maxima: gives the best cosine of each question token in each passage; None: a document has
            no embeddings.
        answers: tells how well passages answer; None: no reader is asked.
    """

    words: str
    index: "PassageIndex"
    cosines: "Callable[[], np.ndarray | None]" = lambda: None
    maxima: "Callable[[], Maxima] | None" = None
    answers: "Answers | None" = None


class GatherSource(Contract, abstract=True):
    """Ranks the passages of documents.

    Attributes:
        embeddings: whether it compares the embeddings that the reading method kept, for which the
            model must read the question.
        vectors: of passages, by the sentence encoder. "needed": it finds nothing in a document
            without them; "used": it works without them; "unused".
        reads: whether it lets the reader that points read passages.
    """

    embeddings: ClassVar[bool] = False
    vectors: ClassVar[Literal["needed", "used", "unused"]] = "unused"
    reads: ClassVar[bool] = False

    @abstractmethod
    def rank(self, sought: Sought) -> "Ranked":
        """How well each passage fits; ties go to the earlier passage."""


def names() -> list[str]:
    """The names of the gather sources, the usual one first."""
    return [USUAL, *sorted({METHOD, *_registry.names()} - {USUAL})]


def summaries() -> dict[str, str]:
    """A summary of each, for help texts."""
    rule = {METHOD: "the rule of the document's own method, as published"}
    return {name: (rule | _registry.summaries())[name] for name in names()}


def check(name: str) -> None:
    """Refuses an unknown name.

    Raises:
        UsageError: there is no such name; lists those there are.
    """
    if name not in names():
        raise UsageError(f"cannot gather by {name!r}", "", f"Known: {', '.join(names())}.")


def load(name: str) -> GatherSource:
    """The gather source of a name other than METHOD.

    Raises:
        UsageError: as `check`.
    """
    check(name)
    return _registry.load(name).GatherSource()


def embeddings(name: str) -> bool:
    """Whether a gather source needs embeddings; METHOD does not: its rule decides."""
    return name != METHOD and load(name).embeddings


def vectors(name: str) -> str:
    """Whether a gather source needs, uses or does not use vectors; METHOD does not."""
    return "unused" if name == METHOD else load(name).vectors
