"""Reads one document: its text, and where a token is in it, beside the rows in `document_rows.py`.

This module knows nothing of models, methods or tokenizers: rows are tensors, positions are bytes.
Opening a document and reading its text, places and word index need only numpy; torch is imported
when tensors are requested.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.core.common import pasting
from longctx.core.common.errors import StateMismatch
from longctx.core.sources import formats, places
from longctx.core.store import shards
from longctx.core.store.boundary import Boundary, unfolded
from longctx.core.store.confined import Confined
from longctx.core.store.document_rows import DocumentRows
from longctx.core.store.manifest import FINGERPRINT, MANIFEST, Manifest
from longctx.core.store.shards import Rows, Shard, damaged

if TYPE_CHECKING:
    import numpy as np

KEPT = 32  # members of text that stay unpacked: passages are all over a document


class Document(DocumentRows):
    """A document on disk, read in parts; every part is verified when it is first read.

    Args:
        folder: the document's folder. Sizes and headers of its files are checked here.
        manifest: the manifest to use; None: the one in the folder.
        needed: the groups that it is opened for; None: all of them.

    Attributes:
        damage: by group, what is wrong with each other group that cannot be read.

    Raises:
        StateMismatch: here and in every method: a file is missing, damaged or of another format.
            A damaged file of the word index or of vectors counts as missing, because it can be
            rebuilt; `words` and `vectors` say what is wrong with it.
    """

    def __init__(
        self,
        folder: Confined | Path,
        manifest: Manifest | None = None,
        needed: Collection[str] | None = None,
    ):
        super().__init__(folder, manifest, needed)
        # Neighbouring passages share a file's newlines and a member's text, so these are kept.
        self._lines: tuple[int, np.ndarray | tuple[()]] = (-1, ())
        self._members: dict[int, bytes] = {}

    def require_model(self, fingerprint: dict[str, str]) -> None:
        """StateMismatch unless `fingerprint` is that of the model that read the document.

        Args:
            fingerprint: "config", "tokenizer" and "weights", which are compared, and "name".
        """
        model = self.manifest.model
        differing = [part for part in FINGERPRINT if model[part] != fingerprint[part]]
        if differing:
            raise StateMismatch(
                f"'{self.manifest.name}' was read with the model {model['name']}",
                f"{fingerprint['name']} has another {' and '.join(differing)}",
                f"Ask with {pasting.option('--model', model['name'])}, or ingest the document "
                "again with --replace",
            )

    def boundary(self) -> Boundary | None:
        """The last place from which reading can continue when text is appended.

        Returns:
            None where the document was written by an older version, which recorded none.
        """
        told = self.manifest.report.get("boundary")
        if told is None:
            return None
        tokens, splits = (
            told.get(key) if isinstance(told, dict) else None for key in ("tokens", "forced_splits")
        )
        if type(tokens) is not int or type(splits) is not int:
            raise damaged(self._folder / MANIFEST, "its boundary has no tokens")
        if not 0 <= tokens <= self.manifest.tokens:
            raise damaged(self._folder / MANIFEST, f"its boundary is at token {tokens:,}")
        snapshot: Rows = {}
        if tokens:
            _, file = self._files("boundary")[0]
            stored = {name: file.tensor(name) for name in file.slots}
            snapshot = unfolded(stored, self.snapshot(), file.path)
        return Boundary(tokens, snapshot, splits)

    @property
    def has_marks(self) -> bool:
        """Whether any source has marks."""
        return "marks" in self._groups

    def full_text(self, size: int) -> list[Shard]:
        """As `full`, for the text files of the first `size` bytes, each with its lines."""
        count = min(size // (shards.MEMBER * shards.MEMBERS), max(0, len(self._text) - 1))
        pairs = zip(self._text[:count], self._groups.get("lines", []), strict=False)
        return [file.shard for pair in pairs for file in pair]

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes [start, end) of the text of all sources, in pieces."""
        for index in range(start // shards.MEMBER, -(-end // shards.MEMBER)):
            first = index * shards.MEMBER
            yield self._member(index)[max(0, start - first) : end - first]

    def text_tail(self) -> Iterator[bytes]:
        """The text that a checkpoint wrote outside full files, if any, in pieces."""
        for file in self._text[-1:]:
            if file.shard.checkpoint is not None:
                yield from (file.member(index) for index in range(file.shard.rows))

    def text(self, source: int, start: int, end: int) -> bytes:
        """Bytes [start, end) of a source as read; only the gzip members they are in are unpacked.

        Raises:
            ValueError: the source does not have these bytes.
        """
        where = self.manifest.sources[source]
        if not 0 <= start <= end <= where.size:
            raise ValueError(f"{where.name!r} has {where.size} bytes, not [{start}, {end})")
        low, high = where.text_start + start, where.text_start + end
        return b"".join(self.raw(low, high))

    def line(self, source: int, offset: int) -> int:
        """The line number, from 1, of the byte at `offset` of a source."""
        start = self.manifest.sources[source].text_start
        return 1 + self._newlines_before(start + offset) - self._newlines_before(start)

    def place(self, source: int, offset: int) -> str:
        """Where in the original the byte at `offset` of a source comes from.

        Returns:
            A line number, or the part of the original: "p. 12", "cell 4", "Sheet1!B7".
        """
        origin = self.manifest.sources[source].origin
        if origin and origin.marks and (number := self._mark(source, offset)) is not None:
            part = self._part(source, number // places.PART) if number >= places.PART else ""
            return formats.cited(origin.marks, number, part)
        return str(self.line(source, offset))

    def _part(self, source: int, count: int) -> str:
        """The name of a sheet or attachment, with which its text begins; empty if there is none."""
        import numpy as np

        where = self.manifest.sources[source]
        for file in self._groups.get("marks", []):
            starts, counts = file.array("starts"), file.array("numbers") // places.PART
            found = np.flatnonzero((counts == count) & (starts >= where.text_start))
            if len(found):
                start = int(starts[found[0]]) - where.text_start
                end = min(start + places.NAME_BYTES, where.size)
                return places.name_in(self.text(source, start, end).decode("utf-8", "replace"))
        return ""

    def _mark(self, source: int, offset: int) -> int | None:
        """The number of the last mark of a source at or before a byte; None where there is none."""
        import numpy as np

        start = self.manifest.sources[source].text_start
        files = [file for file in self._groups.get("marks", []) if file.shard.rows]
        firsts = [int(file.array_rows("starts", 0, 1)[0]) for file in files]
        index = bisect_right(firsts, start + offset) - 1
        if index < 0:
            return None
        starts = files[index].array("starts")
        row = int(np.searchsorted(starts, start + offset, side="right")) - 1
        if starts[row] < start:
            return None
        return int(files[index].array_rows("numbers", row, row + 1)[0])

    def source_of(self, token: int) -> int:
        """The index of the source that a token is in; ValueError where there is no such token."""
        if not 0 <= token < self.manifest.tokens:
            raise ValueError(f"the document has {self.manifest.tokens} tokens, and no {token}")
        starts = [source.first_token for source in self.manifest.sources]
        return bisect_right(starts, token) - 1

    def span(self, first: int, last: int) -> tuple[int, int, int]:
        """Where tokens [first, last) of one source are: (source, start byte, end byte).

        The end is where the next token of the source starts, or the end of the source.

        Raises:
            ValueError: there are no tokens, or they are of more than one source.
        """
        import numpy as np

        source = self.source_of(first)
        where = self.manifest.sources[source]
        stop = where.first_token + where.tokens
        if not first < last <= stop:
            raise ValueError(f"tokens [{first}, {last}) are not of one source")
        rows = np.array([first, min(last, stop - 1)])
        start, end = self.array_take("tokens", rows, "starts").tolist()
        end = where.size if last == stop else end
        if not 0 <= start <= end <= where.size:
            why = f"tokens [{first}, {last}) are at [{start}, {end}) of {where.size:,} bytes"
            raise damaged(self._folder, why, self._folder.name)
        return source, start, end

    def verify(self, on_bytes: Callable[[int], None] = lambda count: None) -> None:
        """Read everything; StateMismatch at the first block that is not what was written.

        Word index and vectors are not checked: they can be rebuilt, and a document without them
        is whole.

        Args:
            on_bytes: gets the number of bytes after each piece, of the files and of the text.
        """
        for shard in self.manifest.shards:
            for block in self.blocks(shard) if shard.group not in shards.OF_PASSAGES else ():
                on_bytes(len(block))
        self.verify_text(on_bytes)

    def verify_text(self, on_bytes: Callable[[int], None] = lambda count: None) -> None:
        """Unpack all text; StateMismatch where a source is not the one that was read.

        Args:
            on_bytes: gets the number of bytes after each piece.
        """
        for number, source in enumerate(self.manifest.sources):
            digest = hashlib.sha256()
            for start in range(0, source.size, shards.MEMBER):
                piece = self.text(number, start, min(start + shards.MEMBER, source.size))
                digest.update(piece)
                on_bytes(len(piece))
            if digest.hexdigest() != source.sha256:
                why = f"its text of '{source.name}' does not have the recorded checksum"
                raise damaged(self._folder, why)

    def _member(self, index: int) -> bytes:
        if index not in self._members:
            file = self._text[index // shards.MEMBERS]
            if len(self._members) == KEPT:
                del self._members[next(iter(self._members))]  # the least recently used
            self._members[index] = file.member(index % shards.MEMBERS)
        self._members[index] = self._members.pop(index)
        return self._members[index]

    def _newlines_before(self, position: int) -> int:
        """Newlines in the first `position` bytes of all text."""
        import numpy as np

        number = position // (shards.MEMBER * shards.MEMBERS)
        files = self._groups.get("lines", [])
        before = sum(file.shard.rows for file in files[:number])
        if number >= len(files):
            return before
        if self._lines[0] != number:
            self._lines = (number, files[number].array("newlines"))
        return before + int(np.searchsorted(self._lines[1], position))
