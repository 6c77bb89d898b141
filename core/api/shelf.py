"""What a document knows of the library that it is in; `Library` is one."""

from pathlib import Path
from typing import Protocol

from longctx.core.store.library import Library as Store


class Shelf(Protocol):
    """A library as its documents see it.

    Attributes:
        path: its folder.
    """

    path: Path

    def _store(self) -> Store:
        """What is on disk."""
        ...

    def _default(self) -> str:
        """The folder's name of the document that is asked where none is named; empty: none."""
        ...
