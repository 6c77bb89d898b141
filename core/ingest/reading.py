"""Moves sources into the store: tokenized ahead of the model, stored behind it.

Tokens and text go to the store only when the model has read them, so the store is always
consistent: the first n tokens, and the text up to the next one. A stopped reading resumes there.
Files are read and tokenized in another thread, which hands over what it found; only the receiving
thread counts and stores. Knows nothing of models or methods.
"""

import os
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from longctx.core.common.background import prefetched
from longctx.core.common.errors import UnreadableInput
from longctx.core.ingest.identity import (
    another,
    begun_with,
    now_after_reading,
    require_same_stream,
    skipped,
)
from longctx.core.ingest.units import KeptUnit
from longctx.core.sources import parser
from longctx.core.sources.detect import NotText
from longctx.core.sources.reader import Made, Source
from longctx.core.store.behind import WriterBehind
from longctx.core.store.document import Document
from longctx.core.store.manifest import Origin, SourceRecord
from longctx.core.store.sameness import Now
from longctx.core.tokens.tokens import Tokens, TokenStream

NOTHING: Mapping[int, KeptUnit] = {}
AHEAD = 64  # pieces of text, of about 2,000 tokens each, that may be queued for the model


@dataclass(eq=False)
class Unit:
    """One source among those that are read one by one.

    Attributes:
        kept: what is taken over of it, all of it; None: it is read.
        goes_on: a checkpoint has its first tokens.
        tokens: those that were given out so far, or are taken over.
    """

    kept: KeptUnit | None = None
    goes_on: bool = False
    tokens: int = 0


@dataclass(frozen=True)
class Taken:
    """What was taken over from an earlier document: sources, tokens, bytes."""

    sources: int = 0
    tokens: int = 0
    bytes: int = 0


class SourceReading:
    """The sources of a document, read once.

    Args:
        sources: what to read, in order.
        stream: the tokenizer.
        behind: gets text and tokens. What it has already is compared, not tokenized again.
        kept: sources, by their place among `sources`, that are taken over from an earlier document.

    Attributes:
        total: bytes of all sources; None if unknown, as for a stream.
        tokens, bytes: of the document, in the store so far.
        skipped: sources that were left out: `place` (sources before it), `path`, `part` of it,
            `mtime_ns`, `why`, a message, and whether there was `text` to miss.
        lost: messages about what is missing in the middle or at the end of sources.
        changed: names of sources that have changed since they were opened.
        forced_splits: places in the stored text where text without line breaks was cut.
        safe: number of first tokens that no longer change, whatever is appended to the document.
        taken: what was taken over from an earlier document.

    Raises:
        CannotGoOn: a stream is not the one whose reading was begun.
    """

    taken = Taken()

    def __init__(
        self,
        sources: list[Source],
        stream: TokenStream,
        behind: WriterBehind,
        kept: Mapping[int, KeptUnit] = NOTHING,
    ):
        self.tokens = self.bytes = self.forced_splits = self.safe = 0
        self.skipped: list[dict[str, Any]] = []
        self.lost: list[str] = []
        self.changed: list[str] = []
        sizes = [source.expected_size for source in sources]
        self.total = None if None in sizes else sum(size or 0 for size in sizes)
        self._stream, self._behind = stream, behind
        self._ahead: deque[_Ahead] = deque()
        self._handled = 0  # sources that are stored to their end, or left out
        self._waiting = deque(_Ahead(source, kept.get(i)) for i, source in enumerate(sources))
        if behind.writer.begun:
            self._go_on(behind.writer.begun)
        self._given = self.tokens  # tokens that were handed out or are in the store

    @contextmanager
    def pieces(self) -> Iterator[Iterator[tuple[Unit, torch.Tensor]]]:
        """The token ids that the store does not have yet, in pieces (n,) int64, in a context.

        Each piece is of one source; that of a source that is taken over has no ids.

        Raises (where they are taken):
            UnreadableInput: a source failed half-way.
            CannotGoOn: a source is not the one that was begun.
            LongctxError: a source was rewritten while it was read.
        """
        found = self._found()
        # A thread that waits for a stream cannot be stopped.
        waiting = [ahead.source for ahead in self._waiting]
        files = all(source.file or source.passing or source.refused for source in waiting)
        ahead = files and self._behind.beside
        with prefetched(found, AHEAD) if ahead else closing(found) as taken:
            try:
                yield self._taken(taken)
            except BaseException:  # Ctrl-C too: do not wait for a file that is being parsed
                parser.end()
                raise

    def _found(self) -> "Generator[_Found]":
        """What is in the sources, in order; changes no state that other threads see."""
        while self._waiting:
            ahead = self._waiting.popleft()
            if ahead.unit.kept:
                yield _Found(ahead, over=True)
                continue
            try:
                yield from ahead.read(self._stream)
            except UnreadableInput as error:
                # An empty, binary or forbidden source fails before anything of it is stored.
                if ahead.source.size:
                    raise
                yield _Found(ahead, over=True, unreadable=error)

    def _taken(self, found: Iterator["_Found"]) -> Iterator[tuple[Unit, torch.Tensor]]:
        for part in found:
            ahead = part.ahead
            if not self._ahead or self._ahead[-1] is not ahead:
                self._ahead.append(ahead)
            ids = ahead.take_in(part)
            if ahead.unit.kept:
                ahead.unit.tokens = ahead.unit.kept.record.tokens
                yield ahead.unit, torch.zeros(0, dtype=torch.long)
            elif ids is not None and part.piece:
                self._note(part.piece, len(ids))
                ahead.unit.tokens += len(ids)
                yield ahead.unit, ids

    def _note(self, piece: Tokens, new: int) -> None:
        """Notes that what precedes a piece is safe, and the piece too if more follows."""
        known = len(piece.ids) - new
        self.safe = max(self.safe, self._given - known)
        self._given += new
        if not piece.last:
            self.safe = self._given

    def store(self, tokens: int = sys.maxsize) -> None:
        """Stores the document's first `tokens` tokens, which the model has read, and their text."""
        while self._ahead:
            ahead = self._ahead[0]
            if ahead.unreadable:
                place, source = self._handled, ahead.source
                file = {"path": source.file, "part": source.part, "mtime_ns": ahead.mtime_ns}
                quiet = source.found and isinstance(ahead.unreadable, NotText)
                told = {"why": str(ahead.unreadable), "text": not quiet}
                self.skipped.append({"place": place, **file, **told})
            elif kept := ahead.unit.kept:
                if kept.record.tokens > tokens - self.tokens:
                    return
                self._take_over(kept, ahead.source)
            else:
                given = ahead.hand_on(self._behind, tokens - self.tokens, self.bytes)
                self.tokens, self.bytes = self.tokens + given[0], self.bytes + given[1]
                self.forced_splits += given[2]
                if ahead.pieces or not ahead.over:
                    return
                self._end(ahead)
            self._ahead.popleft()
            self._handled += 1

    def _take_over(self, kept: KeptUnit, source: Source) -> None:
        kept.hand_on(self._behind, source, self.bytes)
        tokens, size, taken = kept.record.tokens, kept.record.size, self.taken
        self.tokens, self.bytes = self.tokens + tokens, self.bytes + size
        self.taken = Taken(taken.sources + 1, taken.tokens + tokens, taken.bytes + size)

    def report(self) -> dict[str, Any]:
        """What the manifest says about the reading."""
        return {
            "forced_splits": self.forced_splits,
            "skipped": [*self.skipped],
            "lost": [*self.lost],
            "changed": [*self.changed],
        }

    def _end(self, ahead: "_Ahead") -> None:
        source = ahead.source
        self._behind.end_source(
            source.size, source.sha256, source.encoding, source.undecodable, ahead.mtime_ns
        )
        self.lost += source.lost
        if ahead.changed:
            self.changed.append(source.name)

    def _go_on(self, begun: Document) -> None:
        """Resumes after what the store has: finished sources, and perhaps part of one."""
        manifest = begun.manifest
        self.tokens, boundary = manifest.tokens, begun.boundary()
        self.safe = boundary.tokens if boundary else 0
        self.bytes = sum(known.size for known in manifest.sources)
        self.forced_splits = manifest.report.get("forced_splits", 0)
        self.lost = [*manifest.report.get("lost", [])]
        self.skipped, self.changed = skipped(manifest), [*manifest.report.get("changed", [])]
        known = begun_with([ahead.source for ahead in self._waiting], manifest) or []
        done = [self._waiting.popleft() for _ in known]
        if manifest.sources and manifest.sources[-1].undecodable is None:
            done[-1].go_on(begun)
            self._waiting.appendleft(done.pop())
        self._handled = len(done)
        for ahead, source in zip(done, known, strict=False):
            if source and source.path is None and not ahead.source.kept:
                require_same_stream(ahead.source, source)


class _Found(NamedTuple):
    """What came next from a source.

    Attributes:
        ahead: the source.
        data: raw bytes.
        piece: tokens.
        over: nothing more will come.
        unreadable: why nothing comes at all.
        marks: (byte of the text, number in the original) of the raw bytes.
    """

    ahead: "_Ahead"
    data: bytes = b""
    piece: Tokens | None = None
    over: bool = False
    unreadable: UnreadableInput | None = None
    marks: Sequence[tuple[int, int]] = ()


class _Ahead:
    """One source, and what was taken from it that the model has not read yet.

    Attributes:
        source: the source.
        unit: the same, for those who read it.
        pieces: the tokens.
        begun: the store knows the source.
        over: nothing more will come.
        unreadable: why nothing comes at all.
        origin: what the text was made from; None: it is the file itself.
        changed: the file was replaced or has grown since it was opened.
        known: what the store had of it at the start.
    """

    def __init__(self, source: Source, kept: KeptUnit | None = None):
        self.source, self.unit = source, Unit(kept)
        self.pieces: deque[Tokens] = deque()
        self.begun = self.over = self.changed = False
        self.unreadable: UnreadableInput | None = None
        self.origin: Origin | None = None
        self._marks: deque[tuple[int, int]] = deque()
        self.known: SourceRecord | None = None
        self._document: Document | None = None
        self._digest = source.hashed()
        self._text = bytearray()  # from byte `_stored` on
        self._stored = self._end = self._begun_at = 0
        self._compared = source.begin
        self._opened: os.stat_result | None = None

    @property
    def mtime_ns(self) -> int | None:
        """The file's last modification before it was opened; None for what does not stay."""
        if self.source.passing:
            return None
        return self._opened.st_mtime_ns if self._opened else self.source.mtime_ns

    def go_on(self, document: Document) -> None:
        """Begins where `document`, a checkpoint, ends: in the middle of this source."""
        self._document, self.known, self.begun = document, document.manifest.sources[-1], True
        self.unit = Unit(goes_on=self.known.tokens > 0)
        self._stored = self._end = self._begun_at = self.known.size

    def read(self, stream: TokenStream) -> Iterator[_Found]:
        """What is in the source."""
        if self.source.path and self.source.path.is_file():
            self._opened = self.source.path.stat()
        made = self.source.made
        if made:
            self.origin = self._origin(made)
        after = self.known.size if self.known else -1
        data: list[bytes] = []
        for piece in stream.read(self.source, data.append, after):
            yield _Found(self, b"".join(data), piece, marks=made.take_marks() if made else ())
            data.clear()
        marks = made.take_marks() if made else ()
        yield _Found(self, b"".join(data), over=True, marks=marks)

    def _origin(self, made: Made) -> Origin:
        try:
            size, sha256 = made.origin()
        except OSError as error:
            why = error.strerror or str(error)
            raise UnreadableInput(f"cannot read '{self.source.name}'", why) from error
        return Origin(size, sha256, self.source.part, made.marks)

    def take_in(self, found: _Found) -> torch.Tensor | None:
        """Keeps what came, and returns those of its ids that the store does not have."""
        self._add(found.data)
        self._marks += (mark for mark in found.marks if mark[0] >= self._begun_at)
        self.over, self.unreadable = found.over, found.unreadable
        if found.over and not found.unreadable:
            self._require_compared()
            if self._opened and self.source.path:
                now = now_after_reading(self.source, self.origin, self._opened)
                self.changed = now in (Now.GROWN, Now.REPLACED)
        if found.piece is None:
            return None
        piece = self._unknown(found.piece)
        self.pieces.append(piece)
        self._end = piece.end
        return torch.from_numpy(piece.ids).long()

    def hand_on(self, writer: WriterBehind, count: int, end: int) -> tuple[int, int, int]:
        """Passes up to `count` tokens to the writer, and the text before the next one.

        Args:
            writer: gets them.
            count: most tokens.
            end: end of the document's text so far, in bytes.

        Returns:
            How many tokens, bytes and forced splits.
        """
        source, start = self.source, end - self._stored
        if not self.begun:
            given = source.name, source.file, self.mtime_ns, source.encoding, self.origin
            writer.begin_source(*given)
            self.begun = True
        ids, starts, splits = self._take(count)
        writer.append("tokens", {"ids": torch.from_numpy(ids), "starts": torch.from_numpy(starts)})
        text = self._take_text()
        writer.add_bytes(text)
        marks = []
        while self._marks and self._marks[0][0] < self._stored:
            marks.append(self._marks.popleft())
        if marks:
            places, numbers = torch.tensor(marks).T + torch.tensor([[start], [0]])
            writer.append("marks", {"starts": places, "numbers": numbers})
        return len(ids), len(text), splits

    def _take(self, count: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Up to `count` tokens: ids (n,) int32, starts (n,) int64; and their forced splits."""
        ids, starts, splits = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
        while self.pieces and count:
            piece = self.pieces.popleft()
            ids.append(piece.ids[:count])
            starts.append(piece.starts[:count])
            if len(piece.ids) > count:
                self.pieces.appendleft(_without(piece, count))
            else:
                splits += piece.forced
            count -= len(ids[-1])
        return np.concatenate(ids), np.concatenate(starts), splits

    def _take_text(self) -> bytes:
        """The bytes before the next token; at the end of the source, all that are left."""
        next_starts = (int(piece.starts[0]) for piece in self.pieces if len(piece.ids))
        everything = self._stored + len(self._text) if self.over else self._end
        data = bytes(self._text[: next(next_starts, everything) - self._stored])
        del self._text[: len(data)]
        self._stored += len(data)
        return data

    def _add(self, data: bytes) -> None:
        """Adds raw bytes; those that the store has are only compared."""
        old = data[: self.known.size - self._compared] if self.known else b""
        self._digest.update(old)
        self._compared += len(old)
        if old and self.known and self._compared == self.known.size:
            self._require_compared()
        self._text += data[len(old) :]

    def _require_compared(self) -> None:
        known = self.known
        if known and (self._compared, self._digest.hexdigest()) != (known.size, known.sha256):
            raise another(self.source)

    def _unknown(self, piece: Tokens) -> Tokens:
        """A piece without the tokens that the store has."""
        known, document = self.known, self._document
        if not known or not document or piece.begin > known.size:
            return piece

        def start(token: int) -> int:
            return int(document.take("tokens", torch.tensor([token]), ("starts",))["starts"])

        tokens = range(known.first_token, known.first_token + known.tokens)
        first = bisect_left(tokens, piece.begin, key=start)
        same = document.take("tokens", torch.arange(tokens.start + first, tokens.stop), ("ids",))
        count = len(same["ids"])
        # In a text that has grown, the last word may end differently.
        if not np.array_equal(same["ids"].numpy(), piece.ids[:count]):
            raise another(self.source)
        return _without(piece, count)


def _without(piece: Tokens, count: int) -> Tokens:
    """A piece without its first tokens."""
    return replace(piece, ids=piece.ids[count:], starts=piece.starts[count:])
