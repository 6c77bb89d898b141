"""`longctx.Document`: what was read under one name, to be asked, searched and shown."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from longctx.core.api.asking import Askable
from longctx.core.api.model import Model
from longctx.core.api.opening import Chosen
from longctx.core.api.shelf import Shelf
from longctx.core.api.told import created, details, listed
from longctx.core.common.errors import UsageError
from longctx.core.store.facts import Facts

if TYPE_CHECKING:
    from longctx.core.ingest.ingested import Ingested
    from longctx.core.passages.excerpt import Excerpt
    from longctx.core.store.document import Document as Stored
    from longctx.core.store.manifest import Manifest

SIDE = 4000  # bytes of an excerpt on each side of its place


class Document(Askable):
    """A document of a library, from `Library.document` or `Library.ingest`.

    What it says of itself is of the moment at which it was got; its texts are read when they are
    wanted, and it is opened with a model at the first question.

    Attributes:
        library: where it is.
        ingested: what its reading did, if that was in this process; else None.
    """

    def __init__(
        self,
        library: Shelf,
        known: Facts,
        model: Callable[[Model | str | None], Model],
        note: Callable[[str], None],
        partial: bool = False,
    ):
        super().__init__(model, note)
        self.library = library
        self.ingested: Ingested | None = None
        self._known, self._partial = known, partial

    def __repr__(self) -> str:
        return f"<longctx.Document {self.name!r}: {self.tokens:,} tokens, {self.status}>"

    @cached_property
    def _manifest(self) -> "Manifest":
        """All that is recorded of it, read when it is wanted."""
        return self.library._store().described(self.folder)

    @property
    def name(self) -> str:
        """What it is called, in any script."""
        return self._known.name

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, as one of several documents."""
        return (self.name,)

    @property
    def folder(self) -> str:
        """The name of its folder in the library."""
        return self._known.folder

    @property
    def status(self) -> str:
        """One of four words.

        "complete"; "draft": not encoded to its end, so that only its passages can be used;
        "reading": unfinished, without that; "damaged": `as_dict` says why, as `error`.
        """
        return self._known.status

    @property
    def tokens(self) -> int:
        """How many tokens it has; of an unfinished one, those that are kept."""
        return self._known.tokens

    @property
    def bytes(self) -> int:
        """Bytes of its text."""
        return self._known.bytes

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._known.size

    @property
    def method(self) -> str:
        """The reading method."""
        return self._known.method

    @property
    def model(self) -> str:
        """The name of the model that read it."""
        return self._known.model.get("name", "")

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of its sources, such as files, in their order."""
        return tuple(source.name for source in self._manifest.sources)

    @property
    def created(self) -> datetime | None:
        """When it was saved; None: unknown."""
        return created(self._known)

    def _is_of(self, known: Facts) -> bool:
        """Whether it is what is known of a document now."""
        return self._known == known and self._known.stamp == known.stamp

    def summary(self) -> dict[str, Any]:
        """What `longctx list --json` says of it, but for `default`; `bytes` is its text's size."""
        draft = self._known.is_draft
        return listed(self._known, self.library._store().encoded(self.folder) if draft else None)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `longctx show --json`."""
        default = self.library._default() == self.folder and self.status != "reading"
        return details(self._manifest, {**self.summary(), "default": default})

    def as_it_was(self) -> "Ingested":
        """What a reading of it says that finds nothing to do.

        Raises:
            LongctxError: as `ask`.
        """
        from longctx.core.ingest.ingested import as_it_was

        with self._lock:
            return as_it_was(self._for_words().documents[0])

    def text(self, start: int = 0, end: int | None = None, source: int = 0) -> str:
        """Text of a source, from one byte to another.

        Args:
            start, end: bytes; None: to its end. A character of which only a part is between them
                becomes U+FFFD.
            source: the index of the source.

        Raises:
            UsageError: it has no such source, or no such bytes.
            LongctxError: as `ask`.
        """
        with self._lock:
            stored = self._stored(source)
            record = stored.manifest.sources[source]
            end = record.size if end is None else end
            if not 0 <= start <= end <= record.size:
                what = f"cannot take bytes {start:,} to {end:,} of {record.name!r}"
                raise UsageError(what, f"it has {record.size:,}", "Ask for some that it has.")
            return stored.text(source, start, end).decode(record.codec, errors="replace")

    def lines(self, source: int, first: int, last: int) -> list[tuple[int, str]]:
        """Lines of a source, with their numbers from 1; as many as there are of those wanted.

        Args:
            source: its index.
            first, last: the first and the last line, both included.

        Raises:
            UsageError: it has no such source.
            LongctxError: as `ask`.
        """
        with self._lock:
            stored = self._stored(source)
            size = stored.manifest.sources[source].size
            first = max(1, first)
            start, end = (_start_of(stored, source, line) for line in (first, last + 1))
            if last < first or start >= size:
                return []
            text = self.text(start, end, source)
        lines = text.removesuffix("\n").split("\n")
        return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, first)]

    def excerpt(
        self,
        source: int = 0,
        place: tuple[int, int] = (0, 0),
        *,
        line: int | None = None,
        before: int = SIDE,
        after: int = SIDE,
        marks: Sequence[tuple[int, int]] = (),
        within: Sequence[tuple[int, tuple[int, int]]] = (),
    ) -> "Excerpt":
        """Whole lines of a source at a place and around it, for reading on and back from there.

        Args:
            source: the index of the source.
            place: bytes [start, end) of it; cut to what there is, and to 64 KiB.
            line: a line in place of that.
            before, after: bytes on each side, at most 64 KiB.
            marks: bytes [start, end) of the source to mark.
            within: the same, as characters [start, end) of the text that begins at a byte.

        Raises:
            UsageError: it has no such source.
            LongctxError: as `ask`.
        """
        from longctx.core.passages.excerpt import excerpt

        with self._lock:
            stored = self._stored(source)
            if line is not None:
                first, behind = (_start_of(stored, source, number) for number in (line, line + 1))
                place = first, behind
            return excerpt(stored, source, place, before, after, marks, within)

    def _stored(self, source: int) -> "Stored":
        """The open document; under the lock."""
        stored = self._for_words().documents[0]
        if not 0 <= source < len(stored.manifest.sources):
            what = f"'{self.name}' has no source {source}"
            raise UsageError(what, f"it has {len(stored.manifest.sources):,}", "Count from 0.")
        return stored

    def _chosen(self) -> Chosen:
        return Chosen(self.library._store(), self._known, self._partial)


def _start_of(stored: "Stored", source: int, line: int) -> int:
    """The byte at which a line of a source starts; its size where there are not so many."""
    low, high = 0, stored.manifest.sources[source].size
    while low < high:
        middle = (low + high) // 2
        if stored.line(source, middle) < line:
            low = middle + 1
        else:
            high = middle
    return low
