"""By what a document's passages are gathered, one file each; the folder is the registry.

`--gather-by bm25` loads `bm25.py`, whose function `rank` takes a `Sought` and says how well each
window fits. `method` has no file: it is the rule of the method that read the document, as its paper
has it. Importing this loads no model libraries.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longctx.core.common.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.retrieve.late_interaction import Maxima
    from longctx.core.retrieve.lexical import PassageIndex
    from longctx.core.retrieve.ranked import Ranked

METHOD = "method"  # the rule of the document's own method
USUAL = "hybrid"  # what finds most: docs/benchmarks/accuracy.md, "Gather recall"
WORDS = "bm25"  # what needs no embeddings


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


def names() -> list[str]:
    """What there is to gather by, the usual one first."""
    found = {METHOD, *(module.name for module in pkgutil.iter_modules(__path__))}
    return [USUAL, *sorted(found - {USUAL})]


def check(name: str) -> None:
    """Refuses a name that there is not.

    Raises:
        UsageError: no such name, naming those there are.
    """
    if name not in names():
        raise UsageError(f"cannot gather by {name!r}", "", f"Known: {', '.join(names())}.")


def load(name: str) -> "Callable[[Sought], Ranked]":
    """The function `rank` of a name that is not METHOD.

    Raises:
        UsageError: as `check`.
    """
    check(name)
    return importlib.import_module(f"{__name__}.{name}").rank


def needs_embeddings(name: str) -> bool:
    """Whether a source finds nothing where a document has no embeddings."""
    return name != METHOD and getattr(
        importlib.import_module(f"{__name__}.{name}"), "NEEDS_EMBEDDINGS", False
    )
