"""The embeddings of open documents, kept on the model's device between questions.

On a CPU nothing is kept: the operating system caches the files. Data is checked once each time a
document is opened, as always. Knows nothing of queries.
"""

import weakref
from collections import deque
from collections.abc import Generator
from contextlib import suppress

from torch import Tensor

from longctx.core.common.device import empty_cache, free_memory
from longctx.core.common.errors import LongctxError
from longctx.core.contracts.memory import Rows, Stored
from longctx.core.kv.embeddings import GROUP
from longctx.core.store.document import Document

SHARE = 0.5  # of a device's free memory may be taken


class KeptRows:
    """Rows of open documents while there is room for them; the oldest are dropped first.

    Args:
        device: the model's.
    """

    def __init__(self, device: str):
        self.device = device
        self._held: weakref.WeakKeyDictionary[Document, list[tuple[int, Rows]]] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, document: Document) -> Stored:
        """The rows of an open document."""
        return document if self.device == "cpu" else _Held(self, document)

    def held(self, document: Document) -> list[tuple[int, Rows]] | None:
        """The embeddings held for a document; None: there are none."""
        return self._held.get(document)

    def make_room(self, document: Document) -> bool:
        """Drops other documents until this one has room; returns whether it has."""
        size = sum(shard.size for shard in document.manifest.shards if shard.group == GROUP)
        while size > SHARE * (free_memory(self.device) or 0):
            if not self._held:
                return False
            del self._held[next(iter(self._held))]
            empty_cache(self.device)  # else torch keeps it, and it counts as in use
        return True

    def warm(self, document: Document) -> None:
        """Reads a document's embeddings ahead of need; errors surface when they are needed."""
        with suppress(LongctxError):
            if self.device != "cpu" and any(s.group == GROUP for s in document.manifest.shards):
                deque(self.of(document).rows(GROUP), maxlen=0)

    def drop(self, document: Document) -> None:
        """Drops a closed document."""
        self._held.pop(document, None)

    def hold(self, document: Document, rows: list[tuple[int, Rows]]) -> None:
        """Keeps a document's embeddings until it is dropped or garbage-collected."""
        self._held[document] = rows


class _Held:
    """A document's rows; once read, its embeddings come from the device."""

    def __init__(self, kept: KeptRows, document: Document):
        self._kept, self._document = kept, document

    def rows(self, group: str, names: tuple[str, ...] | None = None) -> Generator[tuple[int, Rows]]:
        """See `Stored.rows`; embeddings on the device."""
        if group != GROUP or names is not None:
            yield from self._document.rows(group, names)
            return
        found = self._kept.held(self._document)
        if found is not None:
            yield from found
            return
        keeping: list[tuple[int, Rows]] = []
        has_room = self._kept.make_room(self._document)
        for first, block in self._document.rows_on(group, self._kept.device):
            if has_room:
                keeping.append((first, block))
            yield first, block
        if has_room:
            self._kept.hold(self._document, keeping)

    def take(self, group: str, rows: Tensor, names: tuple[str, ...] | None = None) -> Rows:
        """See `Stored.take`."""
        return self._document.take(group, rows, names)
