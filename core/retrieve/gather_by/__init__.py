"""The gather sources, one file each; the folder is the registry.

`--gather-by bm25` loads `bm25.py`, which defines a class `GatherSource` that inherits the one
below. `method` has no file: it is the rule of the method that read the document, as its paper has
it. Importing this loads no model libraries.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from longctx.core.common.contract import Contract
from longctx.core.common.errors import UsageError
from longctx.core.common.registry import Registry

if TYPE_CHECKING:
    from longctx.core.retrieve.late_interaction import Maxima
    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.retrieve.ranked import Ranked

METHOD = "method"  # the rule of the document's own method
USUAL = "hybrid"  # what finds most: docs/benchmarks/accuracy.md, "Gather recall"
WORDS = "bm25"  # what needs no embeddings
_registry = Registry(__name__, "gather source")


@dataclass(frozen=True)
class Sought:
    """What is looked for, and what is known of the documents.

    Attributes:
        words: the user's words.
        maxima: gives how near each of the question's tokens comes to each unit; None: a document
            has no embeddings.
        index: the words of the documents' windows.
    """

    words: str
    maxima: "Callable[[], Maxima] | None"
    index: "PassageIndex"


class GatherSource(Contract, abstract=True):
    """Ranks the windows of documents.

    Attributes:
        embeddings: "needed": it finds nothing in a document that has none; "used": it does without;
            "unused".
    """

    embeddings: ClassVar[Literal["needed", "used", "unused"]]

    @abstractmethod
    def rank(self, sought: Sought) -> "Ranked":
        """How well each window fits; of equal windows the earlier is gathered first."""


def names() -> list[str]:
    """What there is to gather by, the usual one first."""
    return [USUAL, *sorted({METHOD, *_registry.names()} - {USUAL})]


def summaries() -> dict[str, str]:
    """What each is, for help texts."""
    rule = {METHOD: "the rule of the document's own method, as published"}
    return {name: (rule | _registry.summaries())[name] for name in names()}


def check(name: str) -> None:
    """Refuses a name that there is not.

    Raises:
        UsageError: no such name, naming those there are.
    """
    if name not in names():
        raise UsageError(f"cannot gather by {name!r}", "", f"Known: {', '.join(names())}.")


def load(name: str) -> GatherSource:
    """The gather source of a name that is not METHOD.

    Raises:
        UsageError: as `check`.
    """
    check(name)
    return _registry.load(name).GatherSource()


def embeddings(name: str) -> str:
    """Whether embeddings are needed, used or unused; the method's rule says that itself."""
    return "unused" if name == METHOD else load(name).embeddings
