"""Tracks the boundary while reading: the last chunk end that a longer document will share.

Tokens are safe when the text continues after a safe split. A snapshot is taken only where it may be
the last: before a chunk that is not whole, or whose tokens are not safe. Does not depend on how a
method works.
"""

from longctx.core.contracts.memory import Snapshot
from longctx.core.contracts.method import Method
from longctx.core.ingest.reading import SourceReading
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document


class Boundaries:
    """The last boundary so far.

    Args:
        reading: what is read.
        begun: the checkpoint that it resumes from; None: it starts from scratch.
    """

    def __init__(self, reading: SourceReading, begun: Document | None):
        self._reading = reading
        # The last boundary, and a later one that is not safe yet.
        self._last = begun.boundary() if begun else Boundary(0, {}, 0)
        self._next: Boundary | None = None
        self._stands = begun.manifest.tokens if begun else None  # method's tokens, at a chunk's end

    def before(self, method: Method, end: int | None) -> None:
        """Notes where the method is before it reads a chunk.

        Args:
            method: the method.
            end: tokens at the chunk's end; None if the chunk is not whole.
        """
        self._settle()
        if end is not None and end <= self._reading.safe:
            self._last = self._next = None  # a later end replaces what is held
        elif self._stands:
            self._keep(self._here(method.snapshot()))
        self._stands = end

    def latest(self, snapshot: Snapshot) -> Boundary | None:
        """The last boundary, at a chunk's end or at the end of everything.

        Args:
            snapshot: the method's current snapshot.

        Returns:
            None if unknown, as after a checkpoint of an older version.
        """
        self._settle()
        if self._stands and self._stands <= self._reading.safe:
            return self._here(snapshot)
        return self._last

    def _here(self, snapshot: Snapshot) -> Boundary:
        return Boundary(self._stands or 0, snapshot, self._reading.forced_splits)

    def _keep(self, boundary: Boundary) -> None:
        if boundary.tokens <= self._reading.safe:
            self._last, self._next = boundary, None
        else:
            self._next = boundary

    def _settle(self) -> None:
        if self._next and self._next.tokens <= self._reading.safe:
            self._last, self._next = self._next, None
