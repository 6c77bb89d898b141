"""The embeddings of open documents, kept on the model's device between questions.

On a CPU nothing is kept: the operating system's cache does that. What is read is checked as always,
once for each time that a document is opened. Knows nothing of what is looked for.
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
    """Rows of open documents, as long as there is room for them; the oldest go first.

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
        """What is held of a document's embeddings."""
        return self._held.get(document)

    def make_room(self, document: Document) -> bool:
        """Lets go of other documents until there is room for this one; whether there is."""
        size = sum(shard.size for shard in document.manifest.shards if shard.group == GROUP)
        while size > SHARE * (free_memory(self.device) or 0):
            if not self._held:
                return False
            del self._held[next(iter(self._held))]
            empty_cache(self.device)  # else it stays torch's, and counts as taken
        return True

    def warm(self, document: Document) -> None:
        """Reads a document's embeddings before they are asked for; errors show where they are."""
        with suppress(LongctxError):
            if self.device != "cpu" and any(s.group == GROUP for s in document.manifest.shards):
                deque(self.of(document).rows(GROUP), maxlen=0)

    def drop(self, document: Document) -> None:
        """Lets go of a document that is closed."""
        self._held.pop(document, None)

    def hold(self, document: Document, rows: list[tuple[int, Rows]]) -> None:
        """Keeps a document's embeddings until it is dropped, or nobody has the document."""
        self._held[document] = rows


class _Held:
    """A document's rows, its embeddings from the device once they were read."""

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
        for first, block in self._document.rows(group):
            block = {name: tensor.to(self._kept.device) for name, tensor in block.items()}
            if has_room:
                keeping.append((first, block))
            yield first, block
        if has_room:
            self._kept.hold(self._document, keeping)

    def take(self, group: str, rows: Tensor, names: tuple[str, ...] | None = None) -> Rows:
        """See `Stored.take`."""
        return self._document.take(group, rows, names)
