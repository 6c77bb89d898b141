"""By what a document's tokens are gathered, one file each; the folder is the registry.

`--gather-by bm25` loads `bm25.py`, whose function `scores` takes a `Sought` and gives a score to
every token. `method` has no file: these are the scores of the method that read the document.
Importing this loads no model libraries.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from longctx.core.errors import UsageError

if TYPE_CHECKING:
    from longctx.core.lexical import PassageIndex
    from longctx.core.memory import Scores

METHOD = "method"  # the scores of the document's own method
EXTRA = ("bm25s", "Stemmer")  # what every file here needs beside the core's own dependencies


@dataclass(frozen=True)
class Sought:
    """What is looked for, and what is known of the document.

    Attributes:
        words: the user's words.
        own: gives the scores of the document's own method; LongctxError where it has none.
        index: the words of the document's passages.
    """

    words: str
    own: "Callable[[], Scores]"
    index: "PassageIndex"


def names() -> list[str]:
    """What there is to gather by, the usual one first."""
    return [METHOD, *sorted(module.name for module in pkgutil.iter_modules(__path__))]


def check(name: str) -> None:
    """Refuses a name that there is not.

    Raises:
        UsageError: no such name, naming those there are.
    """
    if name not in names():
        raise UsageError(f"cannot gather by {name!r}", "", f"Known: {', '.join(names())}.")


def require(name: str) -> None:
    """Refuses a name that cannot be used here.

    Raises:
        UsageError: as `check`, or it needs libraries that are not installed.
    """
    check(name)
    missing = [library for library in EXTRA if find_spec(library) is None]
    if name != METHOD and missing:
        raise UsageError(
            f"cannot gather by {name!r}",
            f"{' and '.join(missing)} cannot be imported",
            f"pip install 'longctx[bm25]', or use --gather-by {METHOD}.",
        )


def load(name: str) -> "Callable[[Sought], Scores]":
    """The function `scores` of a name that is not METHOD.

    Raises:
        UsageError: as `require`.
    """
    require(name)
    return importlib.import_module(f"{__name__}.{name}").scores
