"""What to append to a document: the growth of its last source, and further sources.

Finds out which of the named files are which, and refuses those that changed in another way. Writes
nothing, and knows nothing of models.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from longctx.core.common import pasting
from longctx.core.common.errors import UsageError
from longctx.core.ingest.append_sources import LeftOut, Start, StoredSource, hash_of, header_of
from longctx.core.ingest.identity import KEPT, Entry, in_order, left_out_now, place_of
from longctx.core.sources.reader import Source
from longctx.core.store.boundary import Boundary
from longctx.core.store.document import Document
from longctx.core.store.manifest import Manifest, SourceRecord
from longctx.core.store.sameness import Now, compare
from longctx.core.tokens.tokens import TokenStream


@dataclass
class More:
    """What is appended to a document.

    Attributes:
        document: the document.
        file: the file of its last source, if that is named again; else None.
        name: the name it is given by.
        bytes: how much it has grown.
        new: other sources.
    """

    document: Document
    file: Path | None
    name: str | None
    bytes: int
    new: list[Source]

    def sources(self, start: tuple[int, Start], stream: TokenStream) -> list[Source]:
        """All sources in order, including those that were left out.

        The last one keeps its name if the model has read that name.

        Args:
            start: number of the source that the boundary is in, and where to begin there.
            stream: the tokenizer.
        """
        last = len(self.document.manifest.sources) - 1
        if self.file and header_of(self.document, last, stream):
            self.name = self.document.manifest.sources[last].name
        read, behind = _divided(self.document.manifest)
        again = {(source.file, source.part) for source in self.new}  # were unreadable then
        left = [entry for entry in behind if place_of(self.document.manifest, entry) not in again]
        return [*(self._source(entry, start, stream) for entry in [*read, *left]), *self.new]

    def _source(self, entry: Entry, start: tuple[int, Start], stream: TokenStream) -> Source:
        if not isinstance(entry, int):
            return LeftOut(entry)
        first, begin = start
        # What comes before the boundary is not read.
        header = header_of(self.document, entry, stream) if entry >= first else ""
        last = entry == len(self.document.manifest.sources) - 1
        grows = (self.file, self.name) if last else (None, None)
        begin = begin if entry == first else None
        return StoredSource(self.document, entry, begin, *grows, header)

    def sizes(self) -> list[Source]:
        """Sources that report only the size of their new part."""
        grown = [_NewPart(self.name or "", self.file, self.bytes)] if self.file else []
        return [*grown, *self.new]


class _NewPart(Source):
    """The new part of a source, for estimates."""

    def __init__(self, name: str, path: Path, new: int):
        super().__init__(name, path)
        self._new = new

    @property
    def expected_size(self) -> int:
        """New bytes."""
        return self._new


def _divided(manifest: Manifest) -> tuple[list[Entry], list[Entry]]:
    """The entries up to the last source that was read, and those left out after it."""
    order = in_order(manifest)
    end = 1 + order.index(len(manifest.sources) - 1)
    return order[:end], order[end:]


def more_of(document: Document, given: list[Source]) -> More:
    """Tells which of the given sources are the document's last ones, and which are new.

    Raises:
        UsageError: a source has changed, or cannot be put where it is given.
    """
    manifest, last = document.manifest, document.manifest.sources[-1]
    read, behind = _divided(manifest)
    lengths = range(min(len(read), len(given)), 0, -1)
    same = next((n for n in lengths if _are(manifest, read[-n:], given[:n])), 0)
    if not same and given and _is_plain(last, given[0]) and _goes_on(last, given[0]):
        same = 1  # the same text under another name
    for entry, source in zip(read[len(read) - same :][:-1], given, strict=False):
        _require_same(document, entry, source)
    new = given[same:]
    while same and new and behind and _is_still(manifest, behind[0], new[0]):
        behind, new = behind[1:], new[1:]
    _require_new(document, new)
    if not same:
        return More(document, None, None, 0, new)
    source = given[same - 1]
    grown = _grown(document, source)
    name = last.name if source.file == last.path else source.name
    return More(document, source.path if grown else None, name if grown else None, grown, new)


def further_units(document: Document, given: list[Source]) -> More:
    """Those of the given sources that a document does not have whose sources were read one by one.

    Raises:
        UsageError: a source is in the document, and has changed.
    """
    manifest, new = document.manifest, []
    entries = {place_of(manifest, entry): entry for entry in in_order(manifest)}
    for source in given:
        entry = entries.get((source.file, source.part)) if source.file else None
        if entry is None:
            new.append(source)
        elif not isinstance(entry, int):
            new += [] if left_out_now(entry) is Now.SAME else [source]
        elif not _is_same(manifest.sources[entry], source):
            why = f"'{source.name}' is in it and has changed, and each of its files is read whole"
            raise _refused(document, why, _by_file(manifest))
    return More(document, None, None, 0, new)


def _by_file(manifest: Manifest) -> str:
    return (
        "Name all that it is to have, and only what is new or changed is read: longctx ingest "
        f"PATH... {pasting.option('--name', manifest.name)}. To go on with files as they grow, "
        "read them as one text: --replace --no-units."
    )


def end_of(document: Document) -> Boundary:
    """Where a document whose sources were read one by one goes on: nothing before it matters."""
    manifest = document.manifest
    return Boundary(manifest.tokens, {}, manifest.report.get("forced_splits", 0))


def _are(manifest: Manifest, entries: list[Entry], given: list[Source]) -> bool:
    """Whether these are the files that were read, whatever they contain now."""
    pairs = zip(entries, given, strict=True)
    return all(s.file and place_of(manifest, entry) == (s.file, s.part) for entry, s in pairs)


def _is_still(manifest: Manifest, entry: Entry, source: Source) -> bool:
    """Whether a source was left out and would be again."""
    same = place_of(manifest, entry) == (source.file, source.part)
    return same and not isinstance(entry, int) and left_out_now(entry) is Now.SAME


def _require_same(document: Document, entry: Entry, source: Source) -> None:
    """UsageError where a source before the last is not the one that was read or left out."""
    if isinstance(entry, int):
        record = document.manifest.sources[entry]
        if not _is_same(record, source):
            raise _changed(document, record)
    elif left_out_now(entry) is not Now.SAME:
        why = f"'{source.name}', which was left out, has changed, and other files come after it"
        raise _refused(document, why, f"{_anew(document)}. Or append it alone as a further part.")


def _require_new(document: Document, new: list[Source]) -> None:
    """UsageError where one of these is already in the document."""
    manifest = document.manifest
    known = {place_of(manifest, number) for number in range(len(manifest.sources))}
    for source in new:
        if source.file and (source.file, source.part) in known:
            raise UsageError(
                f"cannot append '{source.name}' to '{manifest.name}'",
                "it is in the document, and not its last source",
                f"Name another file, or read everything anew: {anew(document)}",
            )


def _grown(document: Document, source: Source) -> int:
    """Bytes by which the document's last source has grown.

    Raises:
        UsageError: it has changed in another way, or cannot grow.
    """
    last = document.manifest.sources[-1]
    if not _is_plain(last, source):
        if not _is_same(last, source):
            raise _not_plain(document, last)
        return 0
    if source.path is None or not _goes_on(last, source):
        raise _changed(document, last)
    return source.path.stat().st_size - last.size


def _is_plain(record: SourceRecord, source: Source) -> bool:
    """Whether a text was, and would be, read directly from its file."""
    return not (record.origin or source.made)


def _is_same(record: SourceRecord, source: Source) -> bool:
    return source.path is not None and compare(record, source.path) is Now.SAME


def _goes_on(record: SourceRecord, source: Source) -> bool:
    """Whether a source begins with the text that was recorded."""
    return source.path is not None and compare(record, source.path, may_grow=True) in KEPT


def _changed(document: Document, record: SourceRecord) -> UsageError:
    why = (
        f"'{record.name}' does not begin any more with the {record.size:,} bytes that were read "
        "of it: it was rewritten, cut or rotated"
    )
    remedy = f"Read it anew: {anew(document)}. Or append it under another name as a further part."
    return _refused(document, why, remedy)


def _not_plain(document: Document, record: SourceRecord) -> UsageError:
    if not record.origin:
        why = f"'{record.name}' has changed, and was read as the text that it is written in"
        return _refused(document, why, "Add --raw to go on with it.")
    why = (
        f"'{record.name}' was unpacked or converted from a file that has changed since; only a "
        "file that is read as it is can be gone on with"
    )
    remedy = f"{_anew(document)}. Or append it under another name as a further part."
    return _refused(document, why, remedy)


def _refused(document: Document, why: str, remedy: str) -> UsageError:
    return UsageError(f"cannot append to '{document.manifest.name}'", why, remedy)


def _anew(document: Document) -> str:
    return f"Read everything anew: {anew(document)}"


def anew(document: Document) -> str:
    """The command that reads a document again."""
    return f"longctx ingest PATH... {pasting.option('--name', document.manifest.name)} --replace"


def sources_before(more: More, tokens: int) -> tuple[SourceRecord, ...]:
    """The source records of a checkpoint after `tokens` tokens."""
    document = more.document
    sources = document.manifest.sources
    found = [source for source in sources if source.first_token < tokens]
    if not found or found[-1].first_token + found[-1].tokens <= tokens:
        return tuple(found)
    number, known = len(found) - 1, found[-1]
    size = document.span(tokens, tokens + 1)[1]
    opened = replace(
        known,
        size=size,
        sha256=hash_of(document, number, size).hexdigest(),
        tokens=tokens - known.first_token,
        undecodable=None,
    )
    if number == len(sources) - 1 and more.file:
        place = StoredSource(document, number, None, more.file).file
        opened = replace(opened, name=more.name or known.name, path=place)
    return (*found[:-1], opened)


def still_changed(manifest: Manifest, kept: tuple[SourceRecord, ...]) -> list[str]:
    """Sources that changed while they were read, without those that are read again."""
    whole = {source.name for source in kept if source.undecodable is not None}
    return [name for name in manifest.report.get("changed", []) if name in whole]
