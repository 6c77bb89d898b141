"""Documents of a library that are opened when they are looked at, a few at a time.

A search over thousands looks into the dozens that its best windows are in. Who holds a document
keeps others from replacing it; so here each is held only while it is among the latest.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import overload

from longctx.core.common.errors import Locked, NotFound, StateMismatch
from longctx.core.store.document import Document
from longctx.core.store.facts import Facts
from longctx.core.store.library import Library

OPEN = 64  # documents held at a time: more than passages are shown


class LazyDocuments(Sequence[Document]):
    """Documents by their position. Use it as a context manager, or `close` it.

    Args:
        library: where they are.
        facts: of each, in order.
        partial: for an unfinished document, use what its last checkpoint holds.
        needed: the groups that they are opened for; None: all.
        check: is given each that is opened, with its position; what it raises is raised.

    Attributes:
        library, partial: as given.

    Raises:
        StateMismatch: when looked at: a document is damaged, gone or in use; `document` says which.
    """

    def __init__(
        self,
        library: Library,
        facts: Sequence[Facts],
        partial: bool = False,
        needed: Collection[str] | None = None,
        check: Callable[[int, Document], None] = lambda number, document: None,
    ):
        self.library, self.partial, self._facts = library, partial, facts
        self._needed, self._check = needed, check
        self._open: dict[int, tuple[Document, ExitStack]] = {}  # the latest last
        self._closed_bytes = 0

    def __len__(self) -> int:
        return len(self._facts)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if number not in self._open:
            while len(self._open) >= OPEN:
                self._let_go(next(iter(self._open)))
            self._open[number] = self._held(number)
        self._open[number] = self._open.pop(number)
        return self._open[number][0]

    def __iter__(self) -> Iterator[Document]:
        return (self[number] for number in range(len(self)))

    @property
    def checked_bytes(self) -> int:
        """Bytes that were read and verified."""
        return self._closed_bytes + sum(doc.checked_bytes for doc, _ in self._open.values())

    def _held(self, number: int) -> tuple[Document, ExitStack]:
        facts = self._facts[number]
        with ExitStack() as held:
            try:
                reading = self.library.holding(facts.folder, self.partial, self._needed)
                document = held.enter_context(reading)
                if document.manifest.tokens != facts.tokens:
                    raise StateMismatch(f"'{facts.name}' has just changed", "", "Try again")
            except (NotFound, Locked, StateMismatch) as error:
                raise StateMismatch(error.what, error.why, error.remedy, facts.folder) from error
            self._check(number, document)
            return document, held.pop_all()

    def _let_go(self, number: int) -> None:
        document, held = self._open.pop(number)
        self._closed_bytes += document.checked_bytes
        held.close()

    def close(self) -> None:
        """Lets go of all."""
        for number in [*self._open]:
            self._let_go(number)

    def __enter__(self) -> "LazyDocuments":
        return self

    def __exit__(self, *given: object) -> None:
        self.close()
